//! Libraries of others that engines open at run time: which there are, where they are kept, how they are got.
//!
//! They come as Python wheels, through the user's own settings of pip, which checks them against the sums here or in a
//! vendor.yaml. Knows no vendor; changes nothing outside its folder in the user's cache.

mod error;
mod plugin;
mod vendor;

use std::fs;
use std::path::{Path, PathBuf};

pub use error::InstallError;

use crate::config::cache_folder;
use crate::host::{Ending, run_to_end};
use error::unwritten;
use plugin::Plugin;

/// A library that can be installed.
#[derive(Clone, Copy, Debug)]
pub struct Backend {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// The version that was tried: of its package or, where the user has the library already, of that.
    pub version: &'static str,
    /// The package of Python that it is in.
    package: Option<Package>,
    /// The crate of this checkout that makes it an engine, where it is none by itself.
    plugin: Option<Plugin>,
}

/// A package of Python.
#[derive(Clone, Copy, Debug)]
struct Package {
    name: &'static str,
    /// SHA-256 of the wheel for each processor, hexadecimal.
    wheels: &'static [(&'static str, &'static str)],
    /// What it needs beside it: lines of requirements with sums.
    with: &'static str,
    /// The library inside it, without the version behind its name.
    library: &'static str,
}

/// The libraries that `flagperf backend install` gets for any vendor, by name.
pub static BACKENDS: &[Backend] = &[
    Backend {
        name: "libtorch",
        about: "PyTorch's C++ library; the plug-in is built with cargo and a C++ compiler",
        version: "2.11.0",
        package: Some(TORCH),
        plugin: LIBTORCH,
    },
    Backend {
        name: "libtorch-cuda",
        about: "the same with CUDA and cuDNN, which are another 1.8 GB; needs the driver of a device alone",
        version: "2.11.0",
        package: Some(Package { with: include_str!("../libtorch/requirements-cuda.txt"), ..TORCH }),
        plugin: LIBTORCH,
    },
    Backend {
        name: "onnxruntime",
        about: "ONNX Runtime for processors",
        version: "1.31.1",
        package: Some(Package {
            name: "onnxruntime",
            wheels: &[
                ("x86_64", "1f3dea47f2f0e5117c2404cea7d21fd253ae7836a3bf167a501cdfbb2600d536"),
                ("aarch64", "0b9a492176886992e0e875f06bc0367e333f5fff11711a2d642e18b02f3009cc"),
            ],
            with: "",
            library: "onnxruntime/capi/libonnxruntime.so",
        }),
        plugin: None,
    },
    Backend {
        name: "onnxruntime-gpu",
        about: "ONNX Runtime with CUDA 13 and TensorRT providers; needs CUDA and cuDNN",
        version: "1.31.1",
        package: Some(Package {
            name: "onnxruntime-gpu",
            wheels: &[("x86_64", "05d548956197b9d01f59b625de740e0d6be3593f874e241a12dc0362650ecdf7")],
            with: "",
            library: "onnxruntime/capi/libonnxruntime.so",
        }),
        plugin: None,
    },
    Backend {
        name: "openvino",
        about: "OpenVINO for processors, with its devices and the libraries they need",
        version: "2026.4.1",
        package: Some(Package {
            name: "openvino",
            wheels: &[("x86_64", "6b4375c17ddcac83a5180349e2e2bb811185c261066e2a920659892d58ef0e3b")],
            with: "",
            library: "openvino/libs/libopenvino_c.so",
        }),
        plugin: None,
    },
];

const TORCH: Package = Package {
    name: "torch",
    wheels: &[
        ("x86_64", "0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756"),
        ("aarch64", "f99924682ef0aa6a4ab3b1b76f40dc6e273fca09f367d15a524266db100a723f"),
    ],
    with: include_str!("../libtorch/requirements.txt"),
    library: "torch/lib/libtorch_cpu.so",
};

/// The crate that makes libtorch an engine.
const LIBTORCH: Option<Plugin> = Some(Plugin {
    folder: "runtime/libtorch",
    library: "flagperf_libtorch",
    features: &[],
    tells: &[("LIBTORCH", "torch")],
});

/// The Python whose wheels are taken: a library inside does not depend on it, the sums do.
const PYTHON_VERSION: &str = "3.12";
/// Systems whose wheels run here, newest first.
const SYSTEMS: [&str; 5] = ["manylinux_2_28", "manylinux_2_27", "manylinux_2_25", "manylinux_2_18", "manylinux2014"];

/// The library of the first backend of these names that is installed.
pub fn library(names: &[&str]) -> Option<PathBuf> {
    let rows = names.iter().filter_map(|name| BACKENDS.iter().find(|row| row.name == *name));
    rows.filter_map(Backend::installed).next()
}

impl Backend {
    /// The libraries for any vendor, and those that the vendors of the checkout at `root` bring.
    pub fn all(root: &Path) -> Vec<Backend> {
        BACKENDS.iter().copied().chain(vendor::backends(root)).collect()
    }

    /// The one of this name, of those at `root` too.
    pub fn named(root: &Path, name: &str) -> Option<Backend> {
        Backend::all(root).into_iter().find(|row| row.name == name)
    }

    /// Its library, when it is installed: the plug-in's, where there is one.
    pub fn installed(&self) -> Option<PathBuf> {
        let folder = self.folder()?;
        match &self.plugin {
            None => self.package.as_ref()?.library_in(&folder),
            Some(plugin) => Some(plugin.place(&folder)).filter(|library| library.is_file()),
        }
    }

    fn folder(&self) -> Option<PathBuf> {
        Some(cache_folder()?.join("backends").join(format!("{}-{}", self.name, self.version)))
    }

    /// Gets the wheels with `python -m pip`, if it is in one, and builds the plug-in from the `checkout`, if it has one;
    /// each is there whole or not at all, and what is there already is kept. Gives the library.
    ///
    /// # Errors
    /// When there is no wheel for this processor, pip or cargo fails (they say why themselves), or the folder cannot be
    /// written.
    pub fn install(&self, python: &str, checkout: &Path) -> Result<PathBuf, InstallError> {
        if let Some(library) = self.installed() {
            return Ok(library);
        }
        let folder = self.folder().ok_or(InstallError::NoHome)?;
        let library = match &self.package {
            Some(package) => package.library_in(&folder).map_or_else(|| self.unpack(package, python, &folder), Ok)?,
            None => fs::create_dir_all(&folder).map_err(unwritten(&folder)).map(|()| folder.clone())?,
        };
        self.plugin.as_ref().map_or(Ok(library), |plugin| plugin.build(checkout, &folder))
    }

    /// Has pip unpack the wheels into `folder`; gives the library.
    fn unpack(&self, package: &Package, python: &str, folder: &Path) -> Result<PathBuf, InstallError> {
        let processor = std::env::consts::ARCH;
        let Package { name, wheels, .. } = package;
        if !wheels.iter().any(|(known, _)| *known == processor) {
            let known = wheels.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
            return Err(InstallError::Processor { name, processor, known });
        }
        let above = folder.parent().unwrap_or(folder);
        fs::create_dir_all(above).map_err(unwritten(above))?;
        let unfinished = tempfile::Builder::new().prefix("unfinished.").tempdir_in(above).map_err(unwritten(above))?;
        let requirements = unfinished.path().join("requirements.txt");
        let lines = package.requirement(self.version) + package.with;
        fs::write(&requirements, lines).map_err(unwritten(above))?;
        let whole = unfinished.path().join("whole");
        match run_to_end(&pip(python, processor, &requirements, &whole))? {
            Ending::Exited(0) => {}
            ending => return Err(InstallError::Pip { python: python.to_owned(), ending: ending.to_string() }),
        }
        let missing = || InstallError::NoLibrary { name: self.name, library: package.library };
        package.library_in(&whole).ok_or_else(missing)?;
        fs::rename(&whole, folder).map_err(unwritten(above))?;
        package.library_in(folder).ok_or_else(missing)
    }
}

/// The command that unpacks what a file of requirements names into `target`.
fn pip(python: &str, processor: &str, requirements: &Path, target: &Path) -> Vec<String> {
    let fixed = ["-m", "pip", "install", "--no-deps", "--only-binary", ":all:", "--require-hashes"];
    let versions = ["--disable-pip-version-check", "--implementation", "cp", "--python-version", PYTHON_VERSION];
    let mut argv: Vec<String> = std::iter::once(python).chain(fixed).chain(versions).map(str::to_owned).collect();
    for system in SYSTEMS {
        argv.extend(["--platform".to_owned(), format!("{system}_{processor}")]);
    }
    let paths = [("--target", target), ("--requirement", requirements)];
    argv.extend(paths.into_iter().flat_map(|(option, path)| [option.to_owned(), path.display().to_string()]));
    argv
}

impl Package {
    /// The library with the longest name that begins as it should: beside a link may lie what it points to.
    fn library_in(&self, folder: &Path) -> Option<PathBuf> {
        let library = folder.join(self.library);
        let begins = library.file_name()?.to_str()?.to_owned();
        let files = fs::read_dir(library.parent()?).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        let fits = |path: &PathBuf| path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(&begins));
        files.filter(fits).max_by_key(|path| path.as_os_str().len())
    }

    /// The line of a requirements file, with the sums.
    fn requirement(&self, version: &str) -> String {
        let sums: String = self.wheels.iter().map(|(_, sum)| format!(" --hash=sha256:{sum}")).collect();
        format!("{}=={version}{sums}\n", self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn row(name: &str) -> Backend {
        *BACKENDS.iter().find(|row| row.name == name).unwrap()
    }

    #[test]
    fn names_are_unique_and_in_order_and_sums_are_whole() {
        let names: Vec<&str> = BACKENDS.iter().map(|row| row.name).collect();
        assert!(names.is_sorted() && names.iter().collect::<HashSet<_>>().len() == names.len());
        for backend in BACKENDS {
            let package = backend.package.unwrap();
            assert!(!backend.about.is_empty() && !package.wheels.is_empty());
            let lines = package.requirement(backend.version) + package.with;
            for line in lines.lines().filter(|line| !line.starts_with('#')) {
                assert!(line.contains("==") && line.contains(" --hash=sha256:"), "{line}");
                let sums = line.split("--hash=sha256:").skip(1).map(str::trim);
                assert!(sums.clone().all(|sum| sum.len() == 64 && sum.chars().all(|c| c.is_ascii_hexdigit())));
            }
        }
    }

    #[test]
    fn the_library_is_found_by_the_beginning_of_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let package = row("onnxruntime").package.unwrap();
        assert_eq!(package.library_in(folder.path()), None);
        let inside = folder.path().join("onnxruntime/capi");
        fs::create_dir_all(&inside).unwrap();
        for name in ["libonnxruntime.so.1.31.1", "libonnxruntime_providers_shared.so"] {
            fs::write(inside.join(name), b"").unwrap();
        }
        assert_eq!(package.library_in(folder.path()), Some(inside.join("libonnxruntime.so.1.31.1")));
    }

    #[test]
    fn pip_is_asked_for_sums_and_for_this_processor_only() {
        let argv = pip("python3", "x86_64", Path::new("r.txt"), Path::new("t")).join(" ");
        assert!(argv.starts_with("python3 -m pip install --no-deps --only-binary :all: --require-hashes"), "{argv}");
        assert!(argv.ends_with("--platform manylinux2014_x86_64 --target t --requirement r.txt"), "{argv}");
    }

    #[test]
    fn a_plug_in_is_built_from_the_checkout_where_its_library_lies_and_is_its_programs_own() {
        let plugin = row("libtorch").plugin.unwrap();
        let argv = plugin.command(Path::new("/checkout"), Path::new("/cache/libtorch"), Path::new("/target")).join(" ");
        let expected = "env LIBTORCH=/cache/libtorch/torch cargo build --release --locked \
                        --manifest-path /checkout/runtime/libtorch/Cargo.toml --target-dir /target";
        assert_eq!(argv, expected);
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(plugin.folder).join("Cargo.lock").is_file());
        let place = plugin.place(Path::new("/cache")).display().to_string();
        assert!(place.contains(env!("CARGO_PKG_VERSION")), "{place}");
    }

    #[test]
    fn a_requirement_has_the_sum_of_every_wheel() {
        let line = TORCH.requirement("2.11.0");
        assert!(line.starts_with("torch==2.11.0 --hash=sha256:0f68"), "{line}");
        assert!(line.contains(" --hash=sha256:f999") && line.ends_with('\n'), "{line}");
    }
}
