//! Compiles the shims, and lets the plug-in find the libtorch that it was built with.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    let Some(libtorch) = variable("LIBTORCH") else {
        panic!("LIBTORCH is not set: the folder `torch` of an unpacked wheel, or of an unpacked libtorch archive");
    };
    let lib = libtorch.join("lib").canonicalize().expect("`$LIBTORCH/lib` is a folder");
    println!("cargo:rerun-if-changed=src/shim.cpp");
    compiler(&libtorch).file("src/shim.cpp").compile("shim");
    capture(&libtorch);
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

fn compiler(libtorch: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    // libtorch's headers are written for other warnings than ours.
    build.cpp(true).std("c++17").include(libtorch.join("include")).warnings(false);
    build
}

/// The library that captures work on a CUDA device: its names are found when it is opened. Empty without CUDA's headers.
fn capture(libtorch: &Path) {
    println!("cargo:rerun-if-changed=src/capture.cpp");
    println!("cargo:rerun-if-env-changed=CUDA_HOME");
    let library = variable("OUT_DIR").expect("cargo sets it").join("libcapture.so");
    let beside = std::fs::read_dir(libtorch.join("..")).into_iter().flatten().flatten();
    let beside = beside.map(|entry| entry.path().join("cu13/include"));
    let mut folders = beside.chain(variable("CUDA_HOME").map(|home| home.join("include")));
    let Some(headers) = folders.find(|folder| folder.join("crt/host_config.h").is_file()) else {
        println!("cargo:warning=no headers of CUDA beside libtorch or in CUDA_HOME: without `cuda_graph`");
        std::fs::write(&library, b"").expect("OUT_DIR can be written to");
        return;
    };
    let mut command = compiler(libtorch).include(headers).pic(true).get_compiler().to_command();
    let status = command.args(["-shared", "src/capture.cpp", "-o"]).arg(&library).status();
    assert!(status.expect("the compiler can be started").success(), "src/capture.cpp cannot be compiled");
}
