//! Lets the plug-in find the TensorRT that it was built for.

fn main() {
    println!("cargo:rerun-if-env-changed=FLAGPERF_TENSORRT");
    #[expect(clippy::disallowed_methods, reason = "a build script is told by the environment")]
    if let Ok(folder) = std::env::var("FLAGPERF_TENSORRT") {
        let folder = std::path::absolute(&folder).expect("`$FLAGPERF_TENSORRT` is a folder");
        println!("cargo:rustc-env=FLAGPERF_TENSORRT={}", folder.display());
    }
    if cfg!(all(feature = "rtx", feature = "tensorrt")) {
        println!("cargo:warning=both features are on: this is TensorRT, not TensorRT-RTX");
    }
}
