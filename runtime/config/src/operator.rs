//! `vendors/<vendor>/operators/<name>/operator.yaml`: an operator that a vendor brings, with what it computes, how it is built
//! and what it is tested with.

use std::path::{Path, PathBuf};

use flagperf_core::hash::{hash_bytes, hash_file};
use flagperf_core::tensor::DType;
use flagperf_onnx::rewrite::VendorOperator;
use indexmap::IndexMap;

use super::env::backends_folder;
use super::file::{ConfigFile, display_name, read_text};
use super::section::{SectionKind, TEXT, TEXT_MAP, TEXTS, read_section, section};
use super::yaml::Content;
use super::{Finding, ValueKind};

/// The name of the file in an operator's folder.
pub const OPERATOR_FILE: &str = "operator.yaml";
/// The folder of a vendor's operators.
pub const OPERATORS_FOLDER: &str = "operators";

section! {
    /// An operator that a vendor brings. In graphs it has the vendor's name as its domain and the folder's name as its own.
    #[derive(Clone, Debug, PartialEq)]
    pub struct OperatorDescription {
        /// one line that describes the operator
        required(TEXT) about: String,
        /// the element types of outputs that it computes
        required(SectionKind::Value(ValueKind::NonEmptyTextList)) types: Vec<String>,
        /// the ways in which a node of it is written, and the standard operators that compute the same
        required(SectionKind::List(OperatorForm::KEYS)) forms: Vec<OperatorForm>,
        /// the commands that build its libraries, by the kind of device: `cpu` or `cuda`
        required(SectionKind::Sections(OperatorBuild::KEYS)) build: IndexMap<String, OperatorBuild>,
        /// the cases of `flagperf operator test`
        optional(SectionKind::List(OperatorCase::KEYS), "[]") tests: Vec<OperatorCase>,
        /// the cases of `flagperf operator bench`
        optional(SectionKind::List(OperatorCase::KEYS), "[]") benchmarks: Vec<OperatorCase>,
        own {
            /// The operator's folder.
            pub folder: PathBuf,
            file: Option<ConfigFile>,
        }
    }
}

section! {
    /// A way in which a node of an operator is written.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct OperatorForm {
        /// the node, such as `y = chip.norm<epsilon=$epsilon>(x, scale)`
        required(TEXT) operator: String,
        /// the standard operators that compute the same; the last line defines the output of the node
        required(TEXT) standard: String,
        /// the values that must have the same shape and type
        optional(TEXTS, "[]") equal: Vec<String>,
    }
}

section! {
    /// How a library is built.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct OperatorBuild {
        /// the program and its arguments, in the operator's folder; `{include}` is the folder of flagperf_operator.h, and
        /// `{output}` the library
        required(SectionKind::Value(ValueKind::NonEmptyTextList)) command: Vec<String>,
    }
}

section! {
    /// Inputs with which an operator is tested or measured.
    #[derive(Clone, Debug, PartialEq)]
    pub struct OperatorCase {
        /// the shapes of the inputs by their names in a form; with a type, or once with each type of the operator
        required(TEXT_MAP) inputs: IndexMap<String, String>,
        /// the attributes of the node
        optional(TEXT_MAP, "{}") attributes: IndexMap<String, String>,
        /// what the elements are: `normal`, `offset` (normal plus 100), `huge` (near the largest number), `tiny` (subnormal),
        /// `equal`, or `special` (some are NaN or infinite)
        optional(TEXT, "normal") values: String,
        /// the largest difference, relative to the largest element; 0 is what rounding explains
        optional(SectionKind::Number, "0") limit: f64,
    }
}

/// Returns the folder of the libraries that are built from the files in an operator's folder: in the user's cache, because a
/// checkout contains only what its commit does. With other files, it is another folder. `None` if the files cannot be read.
pub fn operator_libraries(operator: &Path) -> Option<PathBuf> {
    let name = operator.file_name()?.to_string_lossy();
    let vendor = operator.parent()?.parent()?.file_name()?.to_string_lossy();
    let hash = &hash_files(operator)?[..16];
    Some(backends_folder()?.join(OPERATORS_FOLDER).join(format!("{vendor}-{name}-{hash}")))
}

/// Returns the SHA-256 over the names and the contents of the files in a folder; `None` if they cannot be read.
pub(super) fn hash_files(folder: &Path) -> Option<String> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.is_file());
    files.sort();
    let mut all = String::new();
    for file in &files {
        let name = file.file_name()?.to_string_lossy();
        all += &format!("{name} {}\n", hash_file(file).ok()?);
    }
    Some(hash_bytes(all.as_bytes()))
}

impl OperatorDescription {
    /// Reads an operator of a vendor.
    ///
    /// # Errors
    /// Fails when there is no such file or it is malformed.
    pub fn read(vendor: &Path, name: &str) -> Result<Self, Finding> {
        let folder = vendor.join(OPERATORS_FOLDER).join(name);
        let root = vendor.parent().and_then(Path::parent).unwrap_or(vendor);
        let path = folder.join(OPERATOR_FILE);
        let text = read_text(&path, &display_name(&path, root))?;
        let file = ConfigFile::parse(&text, display_name(&path, root))?;
        let description: OperatorDescription = read_section(&file, OperatorDescription::KEYS)?;
        let description = OperatorDescription { folder, file: Some(file), ..description };
        description.definition()?;
        for (key, cases) in [("tests", &description.tests), ("benchmarks", &description.benchmarks)] {
            if let Some(case) = cases.iter().find(|case| case.limit < 0.0) {
                return Err(
                    description.finding(key, format!("`limit` is {}, but no difference is negative", case.limit))
                );
            }
        }
        Ok(description)
    }

    /// Returns the names of the operators of a vendor, in order.
    pub fn names(vendor: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(vendor.join(OPERATORS_FOLDER)).into_iter().flatten().flatten();
        // A file that cannot be read is an error, and not a missing operator.
        let with_file = entries.filter(|entry| entry.path().join(OPERATOR_FILE).symlink_metadata().is_ok());
        let mut names: Vec<String> = with_file.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the operator's name in graphs and that of its domain.
    pub fn name(&self) -> (&str, &str) {
        fn name(path: Option<&Path>) -> &str {
            path.and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default()
        }
        (name(self.folder.parent().and_then(Path::parent)), name(Some(&self.folder)))
    }

    /// Returns the element types of outputs that it computes.
    ///
    /// # Errors
    /// When a name is not that of a type, or is listed twice.
    pub fn dtypes(&self) -> Result<Vec<DType>, Finding> {
        let parse = |name: &String| name.parse().map_err(|_| self.finding("types", format!("`{name}` is not a type")));
        if let Some(twice) = self.types.iter().enumerate().find(|(place, name)| self.types[..*place].contains(name)) {
            return Err(self.finding("types", format!("`{}` is listed twice", twice.1)));
        }
        self.types.iter().map(parse).collect()
    }

    /// Returns what the operator computes.
    ///
    /// # Errors
    /// When a form is not a node of this operator with standard operators that define the same output.
    pub fn definition(&self) -> Result<VendorOperator, Finding> {
        let (domain, name) = self.name();
        let mut operator = VendorOperator::new(domain, name, self.dtypes()?);
        for OperatorForm { operator: node, standard, equal } in &self.forms {
            operator.add_form(node, standard, equal).map_err(|reason| self.finding("forms", reason))?;
        }
        Ok(operator)
    }

    /// Returns the library for a kind of device, whether it was built or not; `None` if the user has no folder for caches.
    pub fn library(&self, device: &str) -> Option<PathBuf> {
        Some(operator_libraries(&self.folder)?.join(format!("{device}.so")))
    }

    /// Returns the finding that a case of `key`, which is `tests` or `benchmarks`, is not possible.
    pub fn case_finding(&self, key: &str, case: usize, reason: &str) -> Finding {
        let listed = self.file.as_ref().and_then(|file| match &file.entries.get(key)?.content {
            Content::List(cases) => Some(file.origin(cases.get(case)?)),
            _ => None,
        });
        let finding = self.finding(key, format!("case {}: {reason}", case + 1));
        match listed {
            Some(origin) => Finding { origin, ..finding },
            None => finding,
        }
    }

    fn finding(&self, key: &str, reason: String) -> Finding {
        let file = self.file.as_ref();
        let origin = file.map_or(super::Origin::Default, |file| match file.entries.get(key) {
            Some(node) => file.origin(node),
            None => file.top(),
        });
        Finding::error(origin, format!("`{key}`: {reason}"))
    }
}
