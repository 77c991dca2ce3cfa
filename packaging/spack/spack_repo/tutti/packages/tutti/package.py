# SPDX-License-Identifier: BSD-3-Clause
from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Tutti(CMakePackage, CudaPackage):
    """Collective communications for distributed training. Untried: for Spack 1.0 and later."""

    license("BSD-3-Clause")
    version("main")  # of a clone: spack dev-build tutti@main

    variant("ofi", default=True, description="networks by libfabric")
    variant("lighthouse", default=True, description="lighthouse and managers of fault tolerance")
    variant("hwloc", default=True, description="CPUs, caches and memory by hwloc")

    depends_on("c", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("openssl@3:")
    depends_on("libfabric", when="+ofi")
    depends_on("hwloc@2:", when="+hwloc")
    depends_on("nghttp2", when="+lighthouse")
    depends_on("protobuf-c", when="+lighthouse")
    depends_on("libmicrohttpd", when="+lighthouse")

    def cmake_args(self):
        return [
            self.define("TUTTI_CUDA", "on" if self.spec.satisfies("+cuda") else "off"),
            self.define("TUTTI_BUILD_TESTS", self.run_tests),
            self.define("TUTTI_BUILD_EXAMPLES", False),
        ]
