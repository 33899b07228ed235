//! Libraries that the vendors of a checkout bring, from the section `backends` of each vendor.yaml.

use std::fs;
use std::path::Path;

use super::plugin::PluginCrate;
use super::{Backend, PythonPackage};
use flagperf_config::{BackendEntry, Vendor};

/// Returns the vendors' backends, sorted by vendor and in the order of each vendor.yaml. An unreadable vendor.yaml is
/// skipped here; the configuration's own checks report it.
pub(super) fn backends(root: &Path) -> Vec<Backend> {
    let folders = fs::read_dir(root.join("vendors")).into_iter().flatten().flatten();
    let mut names: Vec<String> = folders.filter_map(|folder| folder.file_name().into_string().ok()).collect();
    names.sort();
    let vendors = names.iter().filter_map(|name| Vendor::read(root, name).ok());
    vendors
        .flat_map(|vendor| {
            vendor.backends.iter().map(|(name, entry)| to_backend(&vendor.name, name, entry)).collect::<Vec<_>>()
        })
        .collect()
}

/// Converts an entry to a row like those of the table. Its strings are leaked, because the table's are static.
fn to_backend(vendor: &str, name: &str, entry: &BackendEntry) -> Backend {
    let text = |text: &String| -> &'static str { text.clone().leak() };
    let pairs = |pairs: &indexmap::IndexMap<String, String>| -> &'static [(&'static str, &'static str)] {
        pairs.iter().map(|(key, value)| (text(key), text(value))).collect::<Vec<_>>().leak()
    };
    let package = entry.package.as_ref().map(|package| PythonPackage {
        name: text(&package.name),
        wheels: pairs(&package.wheels),
        dependencies: "",
        library: text(&package.library),
    });
    let plugin = entry.plugin.as_ref().map(|plugin| PluginCrate {
        folder: format!("vendors/{vendor}/{}", plugin.folder).leak(),
        library: text(&plugin.library),
        features: plugin.features.iter().map(text).collect::<Vec<_>>().leak(),
        environment: pairs(&plugin.build_variables),
    });
    Backend { name: name.to_owned().leak(), about: text(&entry.about), version: text(&entry.version), package, plugin }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use std::path::PathBuf;

    use flagperf_config::find_root;

    use super::*;

    fn root() -> PathBuf {
        find_root(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn vendor_backends_have_unique_names_and_complete_sums() {
        let all = Backend::all(&root());
        assert_eq!(all.iter().map(|row| row.name).collect::<HashSet<_>>().len(), all.len());
        for backend in backends(&root()) {
            let wheels = backend.package.map_or(&[][..], |package| package.wheels);
            assert!(wheels.iter().all(|(_, sum)| sum.len() == 64 && sum.chars().all(|c| c.is_ascii_hexdigit())));
            let folder = root().join(backend.plugin.expect("every vendor backend has a plug-in").folder);
            assert!(folder.join("Cargo.lock").is_file(), "{}", folder.display());
        }
    }

    #[test]
    fn a_plug_in_without_a_package_is_built_with_its_features_against_the_users_library() {
        let entry: BackendEntry = serde_yaml::from_str(
            "{about: a, version: 11.4, plugin: {folder: chip, library: lib_chip, features: [big], tells: {}}}",
        )
        .unwrap();
        let backend = to_backend("mychip", "chip", &entry);
        assert!(backend.package.is_none());
        let argv = backend.plugin.unwrap().command(Path::new("/checkout"), Path::new("/cache"), Path::new("/target"));
        let expected = "env cargo build --release --locked --manifest-path /checkout/vendors/mychip/chip/Cargo.toml \
                        --target-dir /target --no-default-features --features big";
        assert_eq!(argv.join(" "), expected);
    }
}
