//! Compiles the shim, and lets the plug-in find the libtorch that it was built with.

use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    #[expect(clippy::disallowed_methods, reason = "a build script is told by the environment, as torch-sys is")]
    let Ok(libtorch) = std::env::var("LIBTORCH").map(PathBuf::from) else {
        panic!("LIBTORCH is not set: the folder `torch` of an unpacked wheel, or of an unpacked libtorch archive");
    };
    let lib = libtorch.join("lib").canonicalize().expect("`$LIBTORCH/lib` is a folder");
    println!("cargo:rerun-if-changed=src/shim.cpp");
    // libtorch's headers are written for other warnings than ours.
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .include(libtorch.join("include"))
        .warnings(false)
        .file("src/shim.cpp")
        .compile("shim");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
}
