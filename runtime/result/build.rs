//! Passes the compiler's version to the program, for the record.

#[expect(
    clippy::disallowed_methods,
    reason = "the build script queries the compiler's version; the program itself starts nothing here"
)]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = std::process::Command::new(rustc).arg("--version").output();
    let version = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    println!("cargo::rustc-env=FLAGPERF_RUSTC={version}");
}
