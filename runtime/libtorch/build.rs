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
    let shims = ["src/shim.cpp", "src/update.cpp"];
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
    build.cpp(true).std("c++17").include(libtorch.join("include")).warnings(false);
    build
}

/// Compiles the library that captures work on a CUDA device; its symbols are resolved when it is opened. Without the
/// CUDA headers, the file is empty.
fn capture(libtorch: &Path) {
    println!("cargo:rerun-if-changed=src/capture.cpp");
    println!("cargo:rerun-if-env-changed=CUDA_HOME");
    let library = variable("OUT_DIR").expect("cargo sets OUT_DIR").join("libcapture.so");
    let siblings = std::fs::read_dir(libtorch.join("..")).into_iter().flatten().flatten();
    let siblings = siblings.map(|entry| entry.path().join("cu13/include"));
    let mut folders = siblings.chain(variable("CUDA_HOME").map(|home| home.join("include")));
    let Some(headers) = folders.find(|folder| folder.join("crt/host_config.h").is_file()) else {
        println!("cargo:warning=no CUDA headers next to libtorch or in CUDA_HOME: `cuda_graph` will not be available");
        std::fs::write(&library, b"").expect("OUT_DIR must be writable");
        return;
    };
    let mut command = compiler(libtorch).include(headers).pic(true).get_compiler().to_command();
    let status = command.args(["-shared", "src/capture.cpp", "-o"]).arg(&library).status();
    assert!(status.expect("the C++ compiler must be installed").success(), "src/capture.cpp cannot be compiled");
}
