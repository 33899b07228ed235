//! The Python packages that a case requires, as an additional layer of its image.

use std::io;
use std::path::{Path, PathBuf};

use flagperf_core::regular_file::read_regular_text;

use super::recipe::{DOCKERFILE, RecipeFile};
use flagperf_core::hash::hash_bytes;

/// Largest file of requirements or of environment variables.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// The packages that pip installs for a case, with the settings of pip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// The text of requirements.txt.
    text: String,
    /// The texts of the files that set environment variables, in order.
    variables: Vec<String>,
    /// The package index; `None` selects the default of the image.
    index: Option<String>,
}

impl Requirements {
    /// Reads a file of requirements, and the files that set environment variables before pip runs.
    ///
    /// # Errors
    /// When a file cannot be read; the error names it.
    pub fn read(file: &Path, variables: &[PathBuf], index: Option<&str>) -> io::Result<Self> {
        let read = |path: &Path| {
            let text = read_regular_text(path, FILE_BYTES_MAX);
            text.map_err(|error| io::Error::new(error.kind(), format!("`{}`: {error}", path.display())))
        };
        Ok(Requirements {
            text: read(file)?,
            variables: variables.iter().map(|path| read(path)).collect::<Result<_, _>>()?,
            index: index.map(str::to_owned),
        })
    }

    /// Returns the SHA-256 of everything that determines the installed packages. `below` identifies their base, which is an
    /// image or a Python installation.
    pub fn sha256(&self, below: &str) -> String {
        let Requirements { text, variables, index } = self;
        hash_bytes(serde_json::json!([below, text, variables, index]).to_string().as_bytes())
    }

    /// Returns the files from which the layer on top of an image is built.
    pub(super) fn context(&self, image: &str) -> Vec<RecipeFile> {
        let variables = self.variables.iter().enumerate();
        let variables = variables.map(|(number, text)| RecipeFile::text(&format!("variables_{number}.sh"), text));
        let own = [(DOCKERFILE, self.dockerfile(image).as_str()), ("requirements.txt", &self.text)]
            .map(|(name, text)| RecipeFile::text(name, text));
        own.into_iter().chain(variables).collect()
    }

    /// Returns the Dockerfile that installs the packages on top of an image.
    fn dockerfile(&self, image: &str) -> String {
        const INSTALL: &str = "set -a; for file in /opt/flagperf/requirements/variables_*.sh; do \
            if [ -e \"$file\" ]; then . \"$file\"; fi; done; \
            exec python3 -m pip install --no-cache-dir --disable-pip-version-check \
            -r /opt/flagperf/requirements/requirements.txt \"$@\"";
        let index = self.index.iter().flat_map(|index| ["-i", index.as_str()]);
        let command: Vec<&str> = ["/bin/bash", "-c", INSTALL, "pip"].into_iter().chain(index).collect();
        // The image is made for this case, so the packages of its system Python may be changed.
        format!(
            "FROM {image}\nUSER root\nCOPY . /opt/flagperf/requirements/\n\
             RUN [\"/usr/bin/env\",\"PIP_BREAK_SYSTEM_PACKAGES=1\",\"PIP_ROOT_USER_ACTION=ignore\",{}\n",
            &serde_json::json!(command).to_string()[1..]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirements(text: &str, index: Option<&str>) -> Requirements {
        let folder = tempfile::tempdir().unwrap();
        let [file, variables] = ["requirements.txt", "environment_variables.sh"].map(|name| folder.path().join(name));
        std::fs::write(&file, text).unwrap();
        std::fs::write(&variables, "export A=1").unwrap();
        Requirements::read(&file, &[variables], index).unwrap()
    }

    #[test]
    fn the_hash_depends_on_the_image_the_text_and_the_index() {
        let one = requirements("a==1", None).sha256("sha256:1");
        assert_eq!(one, requirements("a==1", None).sha256("sha256:1"));
        for other in [
            requirements("a==1", None).sha256("sha256:2"),
            requirements("a==2", None).sha256("sha256:1"),
            requirements("a==1", Some("https://index/simple")).sha256("sha256:1"),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn the_index_is_one_argument_of_pip_whatever_it_contains() {
        let dockerfile = requirements("a", Some("x; rm -rf / \"\n")).dockerfile("sha256:1");
        assert_eq!(dockerfile.lines().count(), 4);
        assert!(dockerfile.trim_end().ends_with(r#""pip","-i","x; rm -rf / \"\n"]"#), "{dockerfile}");
        let context = requirements("a", None).context("sha256:1");
        let names: Vec<&str> = context.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(names, ["Dockerfile", "requirements.txt", "variables_0.sh"]);
    }

    #[test]
    fn an_unreadable_file_is_named() {
        let error = Requirements::read(Path::new("/no/such/file"), &[], None).unwrap_err().to_string();
        assert!(error.contains("`/no/such/file`"), "{error}");
    }
}
