//! Records the folder of the TensorRT libraries in the plug-in, so that it finds them at run time.

fn main() {
    println!("cargo:rerun-if-env-changed=FLAGPERF_TENSORRT");
    #[expect(clippy::disallowed_methods, reason = "a build script is configured through the environment")]
    if let Ok(folder) = std::env::var("FLAGPERF_TENSORRT") {
        let folder = std::path::absolute(&folder).expect("`$FLAGPERF_TENSORRT` must be a folder");
        println!("cargo:rustc-env=FLAGPERF_TENSORRT={}", folder.display());
    }
    if cfg!(all(feature = "rtx", feature = "tensorrt")) {
        println!("cargo:warning=both features are enabled: building for TensorRT, not for TensorRT-RTX");
    }
}
