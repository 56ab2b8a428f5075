"""Makes a wheel of the package and of the installed shared library, which pkg-config finds.

    PKG_CONFIG_PATH=DIR/lib/pkgconfig pip wheel --no-deps shardloop/python"""
import os
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py


def of_library(*words):
    return subprocess.run(["pkg-config", *words, "shardloop"], check=True, capture_output=True, text=True).stdout.strip()


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        library = os.path.join(of_library("--variable=libdir"), "libshardloop.so")
        if not os.path.exists(library):
            raise SystemExit(f"there is no {library}: build shardloop with -DBUILD_SHARED_LIBS=ON, and install it")
        shutil.copyfile(library, os.path.join(self.build_lib, "shardloop", "libshardloop.so"))


class OfThisMachine(Distribution):
    def has_ext_modules(self):
        return True


setup(name="shardloop", version=of_library("--modversion"), packages=["shardloop"], python_requires=">=3.9",
      description="SPMD programs, pipeline schedules and files of runs, by the library shardloop",
      install_requires=["numpy"], cmdclass={"build_py": BuildWithLibrary}, distclass=OfThisMachine)
