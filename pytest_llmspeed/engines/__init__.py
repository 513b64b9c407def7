"""The engines that tests run on."""
