//! Notes the compiler's version for the record.

#[expect(
    clippy::disallowed_methods,
    reason = "the build asks the compiler for its version; the program starts nothing here"
)]
fn main() {
    println!("cargo::rerun-if-changed=runtime/build.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let asked = std::process::Command::new(rustc).arg("--version").output();
    let version = asked.map(|answer| String::from_utf8_lossy(&answer.stdout).trim().to_owned()).unwrap_or_default();
    println!("cargo::rustc-env=FLAGPERF_RUSTC={version}");
}
