"""HTTP and the OpenAI protocol, with the arrival time of every byte."""
