//! Libraries that the vendors of a checkout bring, by the section `backends` of their vendor.yaml.

use std::fs;
use std::path::Path;

use super::plugin::Plugin;
use super::{Backend, Package};
use crate::config::{BackendEntry, Vendor};

/// What the vendors bring, by vendor and in the order of each; a vendor.yaml that cannot be read is told elsewhere.
pub(super) fn backends(root: &Path) -> Vec<Backend> {
    let folders = fs::read_dir(root.join("vendors")).into_iter().flatten().flatten();
    let mut names: Vec<String> = folders.filter_map(|folder| folder.file_name().into_string().ok()).collect();
    names.sort();
    let vendors = names.iter().filter_map(|name| Vendor::read(root, name).ok());
    vendors
        .flat_map(|vendor| {
            vendor.backends.iter().map(|(name, entry)| row(&vendor.name, name, entry)).collect::<Vec<_>>()
        })
        .collect()
}

/// A row as those of the table, and like them there for as long as the program.
fn row(vendor: &str, name: &str, entry: &BackendEntry) -> Backend {
    let text = |text: &String| -> &'static str { text.clone().leak() };
    let pairs = |pairs: &indexmap::IndexMap<String, String>| -> &'static [(&'static str, &'static str)] {
        pairs.iter().map(|(key, value)| (text(key), text(value))).collect::<Vec<_>>().leak()
    };
    let package = entry.package.as_ref().map(|package| Package {
        name: text(&package.name),
        wheels: pairs(&package.wheels),
        with: "",
        library: text(&package.library),
    });
    let plugin = entry.plugin.as_ref().map(|plugin| Plugin {
        folder: format!("vendors/{vendor}/{}", plugin.folder).leak(),
        library: text(&plugin.library),
        features: plugin.features.iter().map(text).collect::<Vec<_>>().leak(),
        tells: pairs(&plugin.tells),
    });
    Backend { name: name.to_owned().leak(), about: text(&entry.about), version: text(&entry.version), package, plugin }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR"))
    }

    #[test]
    fn what_vendors_bring_has_names_of_its_own_and_whole_sums() {
        let all = Backend::all(root());
        assert_eq!(all.iter().map(|row| row.name).collect::<HashSet<_>>().len(), all.len());
        for backend in backends(root()) {
            let wheels = backend.package.map_or(&[][..], |package| package.wheels);
            assert!(wheels.iter().all(|(_, sum)| sum.len() == 64 && sum.chars().all(|c| c.is_ascii_hexdigit())));
            let folder = root().join(backend.plugin.expect("it is an engine").folder);
            assert!(folder.join("Cargo.lock").is_file(), "{}", folder.display());
        }
    }

    #[test]
    fn a_plug_in_without_a_package_is_built_with_its_features_against_what_the_user_has() {
        let entry: BackendEntry = serde_yaml::from_str(
            "{about: a, version: 11.4, plugin: {folder: chip, library: lib_chip, features: [big]}}",
        )
        .unwrap();
        let backend = row("mychip", "chip", &entry);
        assert!(backend.package.is_none());
        let argv = backend.plugin.unwrap().command(Path::new("/checkout"), Path::new("/cache"), Path::new("/target"));
        let expected = "env cargo build --release --locked --manifest-path /checkout/vendors/mychip/chip/Cargo.toml \
                        --target-dir /target --no-default-features --features big";
        assert_eq!(argv.join(" "), expected);
    }
}
