//! Third-party libraries that engines open at run time: the table of them, their location, and their installation.
//!
//! All of them come as Python wheels, so that one mechanism fetches them. pip downloads them with the user's own
//! settings, so that this repository names no package index, and checks them against the SHA-256 sums here or in the
//! vendor.yaml of the vendor that needs them. Knows no vendor, and changes nothing outside its folder in the user's
//! cache.

mod error;
mod plugin;
mod vendor;

use std::fs;
use std::path::{Path, PathBuf};

pub use error::InstallError;

use error::not_writable;
use flagperf_config::backends_folder;
use flagperf_core::units::Seconds;
use flagperf_host::{Ending, run_to_end};
use plugin::PluginCrate;

/// The time limit of pip, which may load 3 GB, and of cargo.
const INSTALL_TIME_MAX: Seconds = Seconds(4.0 * 3600.0);

/// A library that can be installed.
#[derive(Clone, Copy, Debug)]
pub struct Backend {
    pub name: &'static str,
    pub about: &'static str,
    /// The tested version: of the Python package, or of the library itself when the user has installed it separately.
    pub version: &'static str,
    /// The Python package that contains the library.
    package: Option<PythonPackage>,
    /// The crate of this checkout that wraps the library as a plug-in; `None` when an engine uses the library directly.
    plugin: Option<PluginCrate>,
}

/// A Python package.
#[derive(Clone, Copy, Debug)]
struct PythonPackage {
    name: &'static str,
    /// For each CPU architecture, the SHA-256 of the wheel, in hexadecimal.
    wheels: &'static [(&'static str, &'static str)],
    /// The packages that it depends on, as lines of a requirements file with sums.
    dependencies: &'static str,
    /// The path of the library inside the wheel, without the version at the end of its name.
    library: &'static str,
}

/// The libraries that `flagperf backend install` installs for any vendor, in order of name.
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
        about: "libtorch with CUDA and cuDNN (another 1.8 GB); needs only the driver of the device",
        version: "2.11.0",
        package: Some(PythonPackage { dependencies: include_str!("../../libtorch/requirements-cuda.txt"), ..TORCH }),
        plugin: LIBTORCH,
    },
    Backend {
        name: "onnxruntime",
        about: "ONNX Runtime for CPUs",
        version: "1.31.1",
        package: Some(PythonPackage {
            name: "onnxruntime",
            wheels: &[
                ("x86_64", "1f3dea47f2f0e5117c2404cea7d21fd253ae7836a3bf167a501cdfbb2600d536"),
                ("aarch64", "0b9a492176886992e0e875f06bc0367e333f5fff11711a2d642e18b02f3009cc"),
            ],
            dependencies: "",
            library: "onnxruntime/capi/libonnxruntime.so",
        }),
        plugin: None,
    },
    Backend {
        name: "onnxruntime-gpu",
        about: "ONNX Runtime with CUDA 13 and TensorRT providers; needs CUDA and cuDNN",
        version: "1.31.1",
        package: Some(PythonPackage {
            name: "onnxruntime-gpu",
            wheels: &[("x86_64", "05d548956197b9d01f59b625de740e0d6be3593f874e241a12dc0362650ecdf7")],
            dependencies: "",
            library: "onnxruntime/capi/libonnxruntime.so",
        }),
        plugin: None,
    },
    Backend {
        name: "openvino",
        about: "OpenVINO for CPUs and its other devices, with the libraries that they need",
        version: "2026.4.1",
        package: Some(PythonPackage {
            name: "openvino",
            wheels: &[("x86_64", "6b4375c17ddcac83a5180349e2e2bb811185c261066e2a920659892d58ef0e3b")],
            dependencies: "",
            library: "openvino/libs/libopenvino_c.so",
        }),
        plugin: None,
    },
];

const TORCH: PythonPackage = PythonPackage {
    name: "torch",
    wheels: &[
        ("x86_64", "0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756"),
        ("aarch64", "f99924682ef0aa6a4ab3b1b76f40dc6e273fca09f367d15a524266db100a723f"),
    ],
    dependencies: include_str!("../../libtorch/requirements.txt"),
    library: "torch/lib/libtorch_cpu.so",
};

/// The crate that wraps libtorch as a plug-in.
const LIBTORCH: Option<PluginCrate> = Some(PluginCrate {
    folder: "runtime/libtorch",
    library: "flagperf_libtorch",
    features: &[],
    environment: &[("LIBTORCH", "torch")],
});

/// The Python version whose wheels are downloaded. The checksums are those of the wheels for this version; the library
/// inside is the same for all.
const PYTHON_VERSION: &str = "3.12";
/// The accepted platform tags of wheels, newest first.
const SYSTEMS: [&str; 5] = ["manylinux_2_28", "manylinux_2_27", "manylinux_2_25", "manylinux_2_18", "manylinux2014"];

/// Returns the library of the first of these backends that is installed.
pub fn installed_library(names: &[&str]) -> Option<PathBuf> {
    let rows = names.iter().filter_map(|name| BACKENDS.iter().find(|row| row.name == *name));
    rows.filter_map(Backend::installed).next()
}

impl Backend {
    /// Returns the libraries for any vendor, followed by those that the vendors in the checkout at `root` bring.
    pub fn all(root: &Path) -> Vec<Backend> {
        BACKENDS.iter().copied().chain(vendor::backends(root)).collect()
    }

    /// Returns the backend with this name, including those in the checkout at `root`.
    pub fn find(root: &Path, name: &str) -> Option<Backend> {
        Backend::all(root).into_iter().find(|row| row.name == name)
    }

    /// Returns the installed library; for a backend with a plug-in, the plug-in's.
    pub fn installed(&self) -> Option<PathBuf> {
        let folder = self.folder()?;
        match &self.plugin {
            None => self.package.as_ref()?.library_in(&folder),
            Some(plugin) => Some(plugin.library_path(&folder)).filter(|library| library.is_file()),
        }
    }

    fn folder(&self) -> Option<PathBuf> {
        Some(backends_folder()?.join(format!("{}-{}", self.name, self.version)))
    }

    /// Downloads the library, builds the plug-in from the `checkout`, if there is one, and returns the library or the plug-in.
    /// An interrupted step leaves nothing behind, and a finished one is not repeated.
    ///
    /// # Errors
    /// As [`Backend::download`], and when cargo fails, which prints the reason itself.
    pub fn install(&self, python: &str, checkout: &Path) -> Result<PathBuf, InstallError> {
        if let Some(library) = self.installed() {
            return Ok(library);
        }
        let library = self.download(python)?;
        let folder = self.folder().ok_or(InstallError::NoCacheFolder)?;
        self.plugin.as_ref().map_or(Ok(library), |plugin| plugin.build(checkout, &folder))
    }

    /// Downloads the wheels with `python -m pip`, if there is a package, and returns the library in them, or otherwise the
    /// folder of the backend.
    ///
    /// # Errors
    /// When there is no wheel for this CPU architecture, pip fails (it prints the reason itself), or the folder is not
    /// writable.
    pub fn download(&self, python: &str) -> Result<PathBuf, InstallError> {
        let folder = self.folder().ok_or(InstallError::NoCacheFolder)?;
        match &self.package {
            Some(package) => package.library_in(&folder).map_or_else(|| self.unpack(package, python, &folder), Ok),
            None => fs::create_dir_all(&folder).map_err(not_writable(&folder)).map(|()| folder.clone()),
        }
    }

    /// Unpacks the wheels into `folder` with pip, and returns the library.
    fn unpack(&self, package: &PythonPackage, python: &str, folder: &Path) -> Result<PathBuf, InstallError> {
        let processor = std::env::consts::ARCH;
        let PythonPackage { name, wheels, .. } = package;
        if !wheels.iter().any(|(known, _)| *known == processor) {
            let known = wheels.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
            return Err(InstallError::Processor { name, processor, known });
        }
        let parent = folder.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(not_writable(parent))?;
        let unfinished =
            tempfile::Builder::new().prefix("unfinished.").tempdir_in(parent).map_err(not_writable(parent))?;
        let requirements = unfinished.path().join("requirements.txt");
        let lines = package.requirement(self.version) + package.dependencies;
        fs::write(&requirements, lines).map_err(not_writable(parent))?;
        let whole = unfinished.path().join("whole");
        match run_to_end(&pip_command(python, processor, &requirements, &whole), None, INSTALL_TIME_MAX)? {
            Ending::Exited(0) => {}
            ending => return Err(InstallError::Pip { python: python.to_owned(), ending: ending.predicate() }),
        }
        let missing = || InstallError::NoLibrary { name: self.name, library: package.library };
        package.library_in(&whole).ok_or_else(missing)?;
        fs::rename(&whole, folder).map_err(not_writable(parent))?;
        package.library_in(folder).ok_or_else(missing)
    }
}

/// Returns the command that unpacks the packages of a requirements file into `target`.
fn pip_command(python: &str, processor: &str, requirements: &Path, target: &Path) -> Vec<String> {
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

impl PythonPackage {
    /// Finds the library by the beginning of its name. The longest match is the file itself, of which the shorter ones
    /// are symbolic links.
    fn library_in(&self, folder: &Path) -> Option<PathBuf> {
        let library = folder.join(self.library);
        let prefix = library.file_name()?.to_str()?.to_owned();
        let files = fs::read_dir(library.parent()?).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        let fits = |path: &PathBuf| path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(&prefix));
        files.filter(fits).max_by_key(|path| path.as_os_str().len())
    }

    /// Returns the package's line of a requirements file, with the sums.
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
    fn names_are_unique_and_sorted_and_sums_are_complete() {
        let names: Vec<&str> = BACKENDS.iter().map(|row| row.name).collect();
        assert!(names.is_sorted() && names.iter().collect::<HashSet<_>>().len() == names.len());
        for backend in BACKENDS {
            let package = backend.package.unwrap();
            assert!(!backend.about.is_empty() && !package.wheels.is_empty());
            let lines = package.requirement(backend.version) + package.dependencies;
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
    fn pip_checks_sums_and_downloads_for_this_architecture_only() {
        let argv = pip_command("python3", "x86_64", Path::new("r.txt"), Path::new("t")).join(" ");
        assert!(argv.starts_with("python3 -m pip install --no-deps --only-binary :all: --require-hashes"), "{argv}");
        assert!(argv.ends_with("--platform manylinux2014_x86_64 --target t --requirement r.txt"), "{argv}");
    }

    #[test]
    fn a_plug_in_is_built_from_the_checkout_next_to_its_library_for_this_version_of_the_program() {
        let plugin = row("libtorch").plugin.unwrap();
        let argv = plugin.command(Path::new("/checkout"), Path::new("/cache/libtorch"), Path::new("/target")).join(" ");
        let expected = "env LIBTORCH=/cache/libtorch/torch cargo build --release --locked \
                        --manifest-path /checkout/runtime/libtorch/Cargo.toml --target-dir /target";
        assert_eq!(argv, expected);
        let root = flagperf_config::find_root(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(root.join(plugin.folder).join("Cargo.lock").is_file());
        let path = plugin.library_path(Path::new("/cache")).display().to_string();
        assert!(path.contains(env!("CARGO_PKG_VERSION")), "{path}");
    }

    #[test]
    fn a_requirement_contains_the_sum_of_every_wheel() {
        let line = TORCH.requirement("2.11.0");
        assert!(line.starts_with("torch==2.11.0 --hash=sha256:0f68"), "{line}");
        assert!(line.contains(" --hash=sha256:f999") && line.ends_with('\n'), "{line}");
    }
}
