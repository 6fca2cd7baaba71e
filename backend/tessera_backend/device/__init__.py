"""The CUDA driver: devices, memory, code on a device, launches.

Nothing here imports cuda-python before a device is asked for. See docs/architecture.md.
"""
