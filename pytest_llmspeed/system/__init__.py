"""What the operating system and the machine provide: clock, event loop, lock, processes, CPU, memory."""
