"Memory for language-model assistants: four published designs as notebooks and a package."
__version__ = "0.1.0"
