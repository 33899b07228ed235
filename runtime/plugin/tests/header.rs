//! The stored C header matches `src/abi.rs`, and DLPack's header has the version that the crate uses.

use std::path::Path;

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};

const PREFACE: &str = "\
/* The interface of flagperf's engine plug-ins: a shared library that exports

       const FlagperfPlugin *flagperf_plugin(void);

   Generated from src/abi.rs of the crate flagperf-plugin; UPDATE_API=1 cargo test writes it anew. */";

fn header(abi: &Path) -> String {
    let config = Config {
        language: Language::C,
        style: Style::Type,
        header: Some(PREFACE.to_owned()),
        include_guard: Some("FLAGPERF_PLUGIN_H".to_owned()),
        no_includes: true,
        sys_includes: vec!["stdint.h".to_owned()],
        includes: vec!["dlpack/dlpack.h".to_owned()],
        documentation_style: DocumentationStyle::Doxy,
        cpp_compat: true,
        export: cbindgen::ExportConfig {
            exclude: vec!["SYMBOL".to_owned(), "FlagperfEntry".to_owned()],
            ..Default::default()
        },
        ..Config::default()
    };
    let mut text = Vec::new();
    Builder::new().with_config(config).with_src(abi).generate().expect("a valid interface").write(&mut text);
    String::from_utf8(text).expect("text")
}

#[test]
fn the_stored_header_matches_the_interface() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = package.join("include/flagperf_plugin.h");
    let made = header(&package.join("src/abi.rs"));
    if std::env::vars().any(|(name, _)| name == "UPDATE_API") {
        std::fs::write(&path, &made).expect("the header can be written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == made, "stale: {}; run with UPDATE_API=1 to write it anew", path.display());
}

#[test]
fn the_dlpack_header_has_the_version_of_the_crate() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/dlpack/dlpack.h");
    let header = std::fs::read_to_string(header).expect("DLPack's header");
    let version = |name: &str| {
        let line = header.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")));
        line.and_then(|number| number.parse().ok())
    };
    assert_eq!(version("DLPACK_MAJOR_VERSION"), Some(flagperf_plugin::dlpack::DLPACK_MAJOR_VERSION));
    assert_eq!(version("DLPACK_MINOR_VERSION"), Some(flagperf_plugin::dlpack::DLPACK_MINOR_VERSION));
}
