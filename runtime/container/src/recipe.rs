//! Recipes of images: folders with a Dockerfile and the files that it copies.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flagperf_core::regular_file::read_regular;

use super::ContainerError;
use flagperf_core::hash::hash_bytes;

/// Largest size in bytes of a file of a recipe, and of all files together. Larger files must be downloaded during the build.
const FILE_BYTES_MAX: u64 = 64 << 20;
const RECIPE_BYTES_MAX: usize = 256 << 20;
/// Largest number of files of a recipe.
const FILES_MAX: usize = 1000;
/// Permissions of files and of programs in an image, whatever the umask of the checkout was.
const FILE_MODE: u32 = 0o644;
const PROGRAM_MODE: u32 = 0o755;
/// The permission bit that lets the owner execute a file.
const EXECUTABLE: u32 = 0o100;

/// The file that describes an image.
pub(super) const DOCKERFILE: &str = "Dockerfile";

/// A recipe from which an image is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    folder: PathBuf,
    /// Name of the repository of its images: `flagperf-inference-cpu-interpreter`.
    pub(super) repository: String,
    /// The files, sorted by path.
    files: Vec<RecipeFile>,
    /// The script that runs in the image of the Dockerfile.
    pub(super) install_script: Option<String>,
}

/// A line of a Dockerfile that names an image to build on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BaseImageLine {
    pub(super) name: String,
    /// Number of the line, from 1.
    pub(super) line: usize,
}

/// A file of a recipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecipeFile {
    /// Path relative to the folder.
    pub(super) path: String,
    pub(super) content: Vec<u8>,
    pub(super) is_executable: bool,
}

impl Recipe {
    /// Reads the recipe in `folder`, `docker_images/<vendor>/<framework>[_<version>]`.
    ///
    /// # Errors
    /// When a file cannot be read, is no regular file or is too large.
    pub fn read(folder: &Path) -> Result<Self, ContainerError> {
        let mut files = Vec::new();
        read_folder(folder, "", &mut files)?;
        files.sort_by(|one, other| one.path.cmp(&other.path));
        let bytes: usize = files.iter().map(|file| file.content.len()).sum();
        if bytes > RECIPE_BYTES_MAX {
            return Err(unreadable(folder, io::ErrorKind::FileTooLarge.into()));
        }
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (framework, vendor) = (name(folder), name(folder.parent().unwrap_or(folder)));
        // FlagPerf names the script after the framework without its version.
        let plain = framework.split_once('_').map_or(&*framework, |(plain, _)| plain);
        let scripts = [framework.as_str(), plain].map(|name| format!("{name}_install.sh"));
        let install_script = scripts.into_iter().find(|script| files.iter().any(|file| file.path == *script));
        Ok(Recipe { folder: folder.to_owned(), repository: repository(&vendor, &framework), files, install_script })
    }

    /// Returns the SHA-256 over the paths, contents and executable bits of all files.
    pub fn sha256(&self) -> String {
        let line = |file: &RecipeFile| {
            format!("{} {} {:?}\n", hash_bytes(&file.content), u8::from(file.is_executable), file.path)
        };
        hash_bytes(self.files.iter().map(line).collect::<String>().as_bytes())
    }

    /// Returns the images on which the Dockerfile builds: those of its `FROM` lines that are neither stages nor variables.
    pub(super) fn base_images(&self) -> Vec<BaseImageLine> {
        let file = self.files.iter().find(|file| file.path == DOCKERFILE);
        base_images(&file.map(|file| String::from_utf8_lossy(&file.content)).unwrap_or_default())
    }

    /// Returns the path of the Dockerfile.
    pub(super) fn dockerfile(&self) -> PathBuf {
        self.folder.join(DOCKERFILE)
    }

    /// Returns an archive with the files of the recipe. If `dockerfile` is given, it replaces the Dockerfile.
    pub(super) fn archive(&self, dockerfile: Option<&str>) -> io::Result<Vec<u8>> {
        let own = self.files.iter().filter(|file| dockerfile.is_none() || file.path != DOCKERFILE);
        let given = dockerfile.map(|text| RecipeFile::text(DOCKERFILE, text));
        archive(own.chain(&given))
    }
}

impl RecipeFile {
    /// Returns a file with this text.
    pub(super) fn text(path: &str, text: &str) -> Self {
        RecipeFile { path: path.to_owned(), content: text.as_bytes().to_vec(), is_executable: false }
    }
}

/// Returns an archive with these files, in the form in which an engine receives them.
pub(super) fn archive<'f>(files: impl IntoIterator<Item = &'f RecipeFile>) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for file in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(file.content.len() as u64);
        header.set_mode(if file.is_executable { PROGRAM_MODE } else { FILE_MODE });
        archive.append_data(&mut header, &file.path, file.content.as_slice())?;
    }
    archive.into_inner()
}

fn read_folder(folder: &Path, prefix: &str, files: &mut Vec<RecipeFile>) -> Result<(), ContainerError> {
    for entry in fs::read_dir(folder).map_err(|error| unreadable(folder, error))? {
        let entry = entry.map_err(|error| unreadable(folder, error))?;
        let name = entry.file_name().into_string();
        let name = name.map_err(|_| unreadable(&entry.path(), io::ErrorKind::InvalidFilename.into()))?;
        let path = format!("{prefix}{name}");
        let failed = |error| unreadable(&entry.path(), error);
        let metadata = entry.metadata().map_err(failed)?;
        if metadata.is_dir() {
            read_folder(&entry.path(), &format!("{path}/"), files)?;
            continue;
        }
        let content = read_regular(&entry.path(), FILE_BYTES_MAX).map_err(failed)?;
        files.push(RecipeFile { path, content, is_executable: metadata.permissions().mode() & EXECUTABLE != 0 });
        if files.len() > FILES_MAX {
            return Err(failed(io::Error::other(format!("the recipe has more than {FILES_MAX} files"))));
        }
    }
    Ok(())
}

fn unreadable(path: &Path, source: io::Error) -> ContainerError {
    ContainerError::Recipe { path: PathBuf::from(path), source }
}

/// Returns FlagPerf's name of an image, in the characters that an engine accepts.
fn repository(vendor: &str, framework: &str) -> String {
    let name = format!("flagperf-inference-{vendor}-{framework}").to_lowercase();
    let mut accepted = String::new();
    for letter in name.chars() {
        // Two separators in a row and one at the end are refused.
        if letter.is_ascii_alphanumeric() {
            accepted.push(letter);
        } else if accepted.ends_with(|last: char| last.is_ascii_alphanumeric()) {
            accepted.push(if matches!(letter, '.' | '_') { letter } else { '-' });
        }
    }
    accepted.trim_end_matches(['.', '_', '-']).to_owned()
}

fn base_images(dockerfile: &str) -> Vec<BaseImageLine> {
    let (mut images, mut stages) = (Vec::<BaseImageLine>::new(), Vec::new());
    for (number, line) in (1..).zip(dockerfile.lines()) {
        let words: Vec<&str> = line.split_whitespace().filter(|word| !word.starts_with("--")).collect();
        let [from, image, rest @ ..] = words.as_slice() else { continue };
        if !from.eq_ignore_ascii_case("from") {
            continue;
        }
        let is_image = !image.contains('$') && *image != "scratch" && !stages.contains(image);
        if is_image && !images.iter().any(|known| known.name == *image) {
            images.push(BaseImageLine { name: (*image).to_owned(), line: number });
        }
        if let [word, stage] = rest
            && word.eq_ignore_ascii_case("as")
        {
            stages.push(stage);
        }
    }
    images
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(files: &[(&str, &str)]) -> (Recipe, tempfile::TempDir) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join("chip/pytorch_2.1").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        (Recipe::read(&root.path().join("chip/pytorch_2.1")).unwrap(), root)
    }

    #[test]
    fn the_hash_depends_on_every_path_content_and_executable_bit() {
        let hash = |files: &[(&str, &str)]| recipe(files).0.sha256();
        let one = hash(&[("Dockerfile", "FROM a"), ("x/y", "1")]);
        assert_eq!(one, hash(&[("x/y", "1"), ("Dockerfile", "FROM a")]));
        assert_ne!(one, hash(&[("Dockerfile", "FROM b"), ("x/y", "1")]));
        assert_ne!(one, hash(&[("Dockerfile", "FROM a"), ("x/z", "1")]));
        let (before, root) = recipe(&[("Dockerfile", "FROM a")]);
        let folder = root.path().join("chip/pytorch_2.1");
        fs::set_permissions(folder.join("Dockerfile"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_ne!(before.sha256(), Recipe::read(&folder).unwrap().sha256());
    }

    #[test]
    fn the_install_script_is_named_after_the_framework_with_or_without_its_version() {
        let script = |name: &str| recipe(&[("Dockerfile", ""), (name, "")]).0.install_script;
        assert_eq!(script("pytorch_install.sh").as_deref(), Some("pytorch_install.sh"));
        assert_eq!(script("pytorch_2.1_install.sh").as_deref(), Some("pytorch_2.1_install.sh"));
        assert_eq!(script("other_install.sh"), None);
    }

    #[test]
    fn names_of_images_have_only_characters_that_engines_accept() {
        assert_eq!(repository("cpu", "interpreter"), "flagperf-inference-cpu-interpreter");
        assert_eq!(repository("nvidia", "pytorch_2.11"), "flagperf-inference-nvidia-pytorch_2.11");
        assert_eq!(repository("My Chip", "a__b+"), "flagperf-inference-my-chip-a_b");
    }

    #[test]
    fn base_images_are_neither_stages_nor_variables() {
        let text = "ARG V=1\nFROM --platform=linux/amd64 a:1 AS build\nfrom b@sha256:00\nFROM build\nFROM c:$V\nFROM scratch\n";
        let line = |name: &str, line| BaseImageLine { name: name.to_owned(), line };
        assert_eq!(base_images(text), [line("a:1", 2), line("b@sha256:00", 3)]);
    }

    #[test]
    fn a_link_in_a_recipe_is_refused() {
        let (_, root) = recipe(&[("Dockerfile", "")]);
        let folder = root.path().join("chip/pytorch_2.1");
        std::os::unix::fs::symlink("/no/such/file", folder.join("link")).unwrap();
        assert!(Recipe::read(&folder).unwrap_err().to_string().contains("link"));
    }
}
