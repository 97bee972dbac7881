"Hands name, version and requirements from settings.ini, where people look for them, to setuptools."
from configparser import ConfigParser
from pathlib import Path

import setuptools

here = Path(__file__).parent
config = ConfigParser(delimiters=["="])
config.read(here/"settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]

setuptools.setup(
    version=cfg["version"], description=cfg["description"], author=cfg["author"], author_email=cfg["author_email"],
    license="Apache-2.0", keywords=cfg["keywords"].split(),
    classifiers=["Programming Language :: Python :: 3", f"Intended Audience :: {cfg['audience']}"],
    # data/ travels inside the wheel as memkit._data; read it with importlib.resources.files("memkit._data")
    packages=[*setuptools.find_packages(include=["memkit", "memkit.*"]), "memkit._data"],
    package_dir={"memkit._data": "data"}, package_data={"memkit._data": ["**/*"]}, include_package_data=False,
    install_requires=cfg["requirements"].split(), extras_require={name: cfg[f"{name}_requirements"].split() for name in ("postgres", "dev")},
    long_description=(here/"README.md").read_text(encoding="utf-8"), long_description_content_type="text/markdown",
    entry_points={"console_scripts": cfg["console_scripts"].split(), "nbdev": ["memkit=memkit._modidx:d"], "memkit.assistants": cfg["assistants"].split()},
    zip_safe=False)
