"Small data written for memkit; README.md says what each file is. Read it with importlib.resources.files('memkit._data')."
