"""Between jit and run: Vulkan. Imported when a Vulkan device is first asked for."""
