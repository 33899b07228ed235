//! Compiles the C++ shims, and links the plug-in so that it finds the libtorch that it was built with.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    let Some(libtorch) = variable("LIBTORCH") else {
        panic!(
            "LIBTORCH is not set; set it to the folder `torch` of an unpacked wheel or to an unpacked libtorch archive"
        );
    };
    let lib = libtorch.join("lib").canonicalize().expect("`$LIBTORCH/lib` must be a folder");
    let shims = ["src/shim.cpp", "src/update.cpp", "src/group.cpp"];
    shims.iter().for_each(|shim| println!("cargo:rerun-if-changed={shim}"));
    compiler(&libtorch).files(shims).compile("shim");
    capture(&libtorch);
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

fn compiler(libtorch: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    // libtorch's headers cause many compiler warnings.
    let include = libtorch.join("include");
    build.cpp(true).std("c++17").include("src").include(include.join("torch/csrc/api/include")).include(include);
    build.warnings(false);
    build
}

/// Compiles the library that captures work on a CUDA device and joins its NCCL group; its symbols are resolved when it is opened.
/// Without the CUDA headers, the file is empty; without those of NCCL, it joins no group.
fn capture(libtorch: &Path) {
    println!("cargo:rerun-if-changed=src/capture.cpp");
    println!("cargo:rerun-if-changed=src/nccl.cpp");
    for header in ["src/catch_error.hpp", "src/group.hpp"] {
        println!("cargo:rerun-if-changed={header}");
    }
    println!("cargo:rerun-if-env-changed=CUDA_HOME");
    let library = variable("OUT_DIR").expect("cargo sets OUT_DIR").join("libcapture.so");
    let siblings = std::fs::read_dir(libtorch.join("..")).into_iter().flatten().flatten();
    let siblings: Vec<PathBuf> = siblings.map(|entry| entry.path()).collect();
    let find = |folder: &str, header: &str| {
        let wheels = siblings.iter().map(|wheel| wheel.join(folder));
        let mut folders = wheels.chain(variable("CUDA_HOME").map(|home| home.join("include")));
        folders.find(|folder| folder.join(header).is_file())
    };
    let Some(headers) = find("cu13/include", "crt/host_config.h") else {
        println!("cargo:warning=no CUDA headers next to libtorch or in CUDA_HOME: `cuda_graph` will not be available");
        std::fs::write(&library, b"").expect("OUT_DIR must be writable");
        return;
    };
    let nccl = find("nccl/include", "nccl.h");
    let mut build = compiler(libtorch);
    build.include(headers).includes(&nccl);
    let mut command = build.pic(true).get_compiler().to_command();
    let sources = ["src/capture.cpp"].into_iter().chain(nccl.is_some().then_some("src/nccl.cpp"));
    let status = command.arg("-shared").args(sources).arg("-o").arg(&library).status();
    assert!(status.expect("the C++ compiler must be installed").success(), "the library for CUDA cannot be compiled");
}
