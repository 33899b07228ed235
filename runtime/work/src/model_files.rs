//! The files of the model that inference loads, by graph, with their hashes, and checks that they do not change while
//! in use.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flagperf_core::regular_file::open_regular;
use flagperf_onnx::{Model, data_files};
use indexmap::IndexMap;

use super::phase::failure;
use flagperf_core::event::{Failure, FileFacts};
use flagperf_core::hash::hash_reader;
use flagperf_core::units::Bytes;
use flagperf_plan::{Manifest, ManifestGraph};

const REPLACED_HINT: &str = "does another program write there? each run exports into its own folder";
const TRUNCATED_HINT: &str = "was the file cut short? `exist_onnx_path: null` exports a new one";

/// An open file with the hash of its content.
#[derive(Debug)]
pub struct HashedFile {
    path: PathBuf,
    file: File,
    state: FileState,
    facts: FileFacts,
}

/// The metadata that changes when a file changes: identity, size and modification time.
#[derive(Debug, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl FileState {
    fn of(metadata: &Metadata) -> Self {
        FileState {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl HashedFile {
    /// Opens a regular file and hashes it.
    ///
    /// # Errors
    /// When the file cannot be opened or read.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| failure(&format!("`{}`: {error}", path.display()), "");
        let file = open_regular(path).map_err(failed)?;
        let state = FileState::of(&file.metadata().map_err(failed)?);
        let sha256 = hash_reader(&file).map_err(failed)?;
        let facts = FileFacts { path: path.display().to_string(), size_bytes: Bytes(state.size), sha256 };
        Ok(HashedFile { path: path.to_owned(), file, state, facts })
    }

    /// Returns the path, the size and the hash of the file.
    pub fn facts(&self) -> &FileFacts {
        &self.facts
    }

    /// Checks that the path still leads to the hashed file and that the file has not been written to, so that whatever
    /// was read through the path is what was hashed.
    ///
    /// # Errors
    /// When the file was replaced or written to.
    pub fn check_path(&self) -> Result<(), Failure> {
        self.check(std::fs::metadata(&self.path))?;
        self.check_content()
    }

    /// Checks that the file has not been written to since it was hashed. A new file under the same name does not affect
    /// an engine that has the hashed file open or mapped.
    ///
    /// # Errors
    /// When the file was written to.
    pub fn check_content(&self) -> Result<(), Failure> {
        self.check(self.file.metadata())
    }

    fn check(&self, now: std::io::Result<Metadata>) -> Result<(), Failure> {
        match now {
            Ok(now) if FileState::of(&now) == self.state => Ok(()),
            _ => Err(failure(&format!("`{}` changed while it was in use", self.path.display()), REPLACED_HINT)),
        }
    }

    /// Opens a file that a manifest lists, and checks its size and hash.
    fn open_listed(listed: &FileFacts, manifest: &Path) -> Result<Self, Failure> {
        let path = manifest.with_file_name(&listed.path);
        let differs = |difference: String| {
            let (path, manifest) = (path.display(), manifest.display());
            failure(&format!("`{path}` is not the file that `{manifest}` lists: {difference}"), REPLACED_HINT)
        };
        let expected = listed.size_bytes;
        let size = std::fs::metadata(&path).map(|metadata| Bytes(metadata.len())).unwrap_or(expected);
        if size != expected {
            return Err(differs(format!("its size is {} bytes instead of {}", size.0, expected.0)));
        }
        let file = Self::open(&path)?;
        if file.facts.sha256 != listed.sha256 {
            return Err(differs(format!("its SHA-256 is `{}` instead of `{}`", file.facts.sha256, listed.sha256)));
        }
        Ok(file)
    }
}

/// The files of a model, opened and hashed.
#[derive(Debug)]
pub struct ModelFiles {
    graphs: Vec<GraphFiles>,
}

/// The files of one graph: first the one that is passed to the engine.
#[derive(Debug)]
struct GraphFiles {
    name: String,
    files: Vec<HashedFile>,
}

impl GraphFiles {
    /// Checks that the data files which the graph reads are exactly those that its manifest lists.
    fn check_data_files(&self, read: &[PathBuf], manifest: &Path) -> Result<(), Failure> {
        let listed: Vec<&PathBuf> = self.files[1..].iter().map(|file| &file.path).collect();
        let unlisted = read.iter().find(|file| !listed.contains(file)).map(|file| (file, "reads", "does not list"));
        let unread = listed.iter().find(|file| !read.contains(file)).map(|file| (*file, "does not read", "lists"));
        let Some((file, reads, lists)) = unlisted.or(unread) else { return Ok(()) };
        let (graph, file, manifest) = (&self.name, file.display(), manifest.display());
        let reason = format!("graph `{graph}` {reads} the data file `{file}`, which `{manifest}` {lists}");
        Err(failure(&reason, "a manifest must list exactly the files of each graph"))
    }
}

impl ModelFiles {
    /// Opens an ONNX file, or those of a manifest, and every data file that they reference.
    ///
    /// # Errors
    /// When a file cannot be read, is not an ONNX model, or differs from the one that the manifest lists.
    pub fn open_onnx(path: &Path) -> Result<Self, Failure> {
        let manifest = Manifest::has_manifest_name(path);
        if !manifest {
            // Refuses a file that is not an ONNX model before hashing it.
            data_files(path).map_err(|e| failure(&e, TRUNCATED_HINT))?;
        }
        let mut model = Self::open_compiled(path)?;
        for graph in &mut model.graphs {
            let data = data_files(&graph.files[0].path).map_err(|e| failure(&e, TRUNCATED_HINT))?;
            if manifest {
                graph.check_data_files(&data, path)?;
            } else {
                graph.files.extend(data.iter().map(|path| HashedFile::open(path)).collect::<Result<Vec<_>, _>>()?);
            }
        }
        Ok(model)
    }

    /// Opens a file that a compiler wrote, or those of a manifest.
    ///
    /// # Errors
    /// When a file cannot be read, or differs from the one that the manifest lists.
    pub fn open_compiled(path: &Path) -> Result<Self, Failure> {
        if !Manifest::has_manifest_name(path) {
            let graph = GraphFiles { name: Model::SINGLE.to_owned(), files: vec![HashedFile::open(path)?] };
            return Ok(ModelFiles { graphs: vec![graph] });
        }
        let manifest =
            Manifest::read(path).map_err(|e| failure(&e, "configs/README.md describes the manifest format"))?;
        let graph = |ManifestGraph { name, files }: ManifestGraph| {
            let files = files.iter().map(|listed| HashedFile::open_listed(listed, path));
            Ok(GraphFiles { name, files: files.collect::<Result<_, Failure>>()? })
        };
        Ok(ModelFiles { graphs: manifest.graphs.into_iter().map(graph).collect::<Result<_, Failure>>()? })
    }

    /// Returns the file that is passed to an engine for each graph, by the name of the graph.
    pub fn entry_files(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.graphs.iter().map(|graph| (graph.name.as_str(), graph.files[0].path.as_path()))
    }

    /// Returns the paths, sizes and hashes of the files of each graph.
    pub fn facts(&self) -> IndexMap<String, Vec<FileFacts>> {
        let facts = |graph: &GraphFiles| graph.files.iter().map(|file| file.facts().clone()).collect();
        self.graphs.iter().map(|graph| (graph.name.clone(), facts(graph))).collect()
    }

    /// Checks that the files which an engine read by their paths are those that were hashed.
    ///
    /// # Errors
    /// As [`HashedFile::check_path`].
    pub fn check_paths(&self) -> Result<(), Failure> {
        self.graphs.iter().flat_map(|graph| &graph.files).try_for_each(HashedFile::check_path)
    }

    /// Checks that no file was written to while an engine may have mapped it.
    ///
    /// # Errors
    /// As [`HashedFile::check_content`].
    pub fn check_contents(&self) -> Result<(), Failure> {
        self.graphs.iter().flat_map(|graph| &graph.files).try_for_each(HashedFile::check_content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes an ONNX file whose weights are in a data file beside it.
    fn write_with_data(folder: &Path) -> PathBuf {
        let mut builder = flagperf_onnx::GraphBuilder::new("g");
        let x = builder.input("x", "N,64,f32".parse().unwrap()).unwrap();
        let linear = flagperf_onnx::layers::Linear::new(64, 8);
        let y = flagperf_onnx::layers::linear(&mut builder, "fc", &x, linear).unwrap();
        builder.output("y", &y).unwrap();
        let path = folder.join("m.onnx");
        let options = flagperf_onnx::WriteOptions { external_above: 0 };
        flagperf_onnx::write_onnx_with(&builder.finish().unwrap(), &path, options).unwrap();
        path
    }

    #[test]
    fn every_file_that_a_graph_reads_is_opened_and_hashed() {
        let folder = tempfile::tempdir().unwrap();
        let path = write_with_data(folder.path());
        let files = ModelFiles::open_onnx(&path).unwrap();
        let facts = files.facts();
        let names = |file: &FileFacts| Path::new(&file.path).file_name().unwrap().display().to_string();
        assert_eq!(facts[Model::SINGLE].iter().map(names).collect::<Vec<_>>(), ["m.onnx", "m.onnx.data"]);
        assert_eq!(
            facts[Model::SINGLE][1].sha256,
            flagperf_core::hash::hash_file(&folder.path().join("m.onnx.data")).unwrap()
        );
        assert_eq!(files.entry_files().collect::<Vec<_>>(), [(Model::SINGLE, path.as_path())]);
    }

    #[test]
    fn a_fifo_is_refused_without_waiting_as_a_model_and_as_a_data_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = write_with_data(folder.path());
        let data = folder.path().join("m.onnx.data");
        std::fs::remove_file(&data).unwrap();
        nix::unistd::mkfifo(&data, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let reason = ModelFiles::open_onnx(&path).unwrap_err().reason;
        assert_eq!(reason, format!("`{}`: is a FIFO, not a regular file", data.display()));
        let reason = ModelFiles::open_onnx(&data).unwrap_err().reason;
        assert_eq!(reason, format!("cannot open the ONNX file `{}`: is a FIFO, not a regular file", data.display()));
        let reason = flagperf_onnx::read_onnx(&path).unwrap_err().to_string();
        assert!(
            reason.contains("data file `m.onnx.data` of weight `fc.weight`")
                && reason.ends_with("is a FIFO, not a regular file"),
            "{reason}"
        );
    }

    #[test]
    fn a_data_file_may_be_a_link_to_another_folder_and_is_hashed_by_its_content() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = write_with_data(folder.path());
        let (data, target) = (folder.path().join("m.onnx.data"), elsewhere.path().join("blob"));
        let before = ModelFiles::open_onnx(&path).unwrap().facts();
        std::fs::rename(&data, &target).unwrap();
        std::os::unix::fs::symlink(&target, &data).unwrap();
        assert_eq!(ModelFiles::open_onnx(&path).unwrap().facts(), before);
    }

    #[test]
    fn a_manifest_that_does_not_list_exactly_the_data_files_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = write_with_data(folder.path());
        let facts = |name: &str| {
            let path = folder.path().join(name);
            let size_bytes = Bytes(std::fs::metadata(&path).unwrap().len());
            FileFacts { path: name.to_owned(), size_bytes, sha256: flagperf_core::hash::hash_file(&path).unwrap() }
        };
        let opened = |names: &[&str]| {
            let files = names.iter().map(|name| facts(name)).collect();
            let manifest = Manifest { graphs: vec![ManifestGraph { name: "g".to_owned(), files }] };
            let at = Manifest::path_beside(&path);
            std::fs::write(&at, serde_json::to_string(&manifest).unwrap()).unwrap();
            let opened = ModelFiles::open_onnx(&at).map(drop).map_err(|failure| failure.reason);
            opened.map_err(|reason| reason.replace(&folder.path().display().to_string(), ""))
        };
        opened(&["m.onnx", "m.onnx.data"]).unwrap();
        let reason = "graph `g` reads the data file `/m.onnx.data`, which `/m.graphs.json` does not list";
        assert_eq!(opened(&["m.onnx"]), Err(reason.to_owned()));
        std::fs::write(folder.path().join("more"), "x").unwrap();
        let reason = "graph `g` does not read the data file `/more`, which `/m.graphs.json` lists";
        assert_eq!(opened(&["m.onnx", "m.onnx.data", "more"]), Err(reason.to_owned()));
    }

    #[test]
    fn a_file_that_changes_while_it_is_in_use_fails_the_checks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.engine");
        std::fs::write(&path, "one").unwrap();
        let files = ModelFiles::open_compiled(&path).unwrap();
        files.check_paths().unwrap();
        let other = folder.path().join("other");
        std::fs::write(&other, "two").unwrap();
        std::fs::rename(&other, &path).unwrap();
        let reason = files.check_paths().unwrap_err().reason;
        assert_eq!(reason, format!("`{}` changed while it was in use", path.display()));
        files.check_contents().expect("the open file is the hashed one");
        let files = ModelFiles::open_compiled(&path).unwrap();
        std::fs::write(&path, "three").unwrap();
        assert!(files.check_contents().is_err());
    }

    #[test]
    fn the_error_for_a_truncated_onnx_file_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = write_with_data(folder.path());
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let reason = ModelFiles::open_onnx(&path).unwrap_err().reason;
        assert!(reason.contains("m.onnx` is not a complete ONNX model"), "{reason}");
    }
}
