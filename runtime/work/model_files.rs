//! The model that inference loads: its files by graph, what is in them, and that they stay so while they are used.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flagperf_onnx::{Model, data_files, open_regular};
use indexmap::IndexMap;

use super::phase::failure;
use crate::event::{Failure, FileFacts};
use crate::hash::hash_reader;
use crate::plan::{Manifest, ManifestGraph};
use crate::units::Bytes;

const REPLACED: &str = "does another program write there? each run exports into its own folder";
const CUT: &str = "was the file cut short? `exist_onnx_path: null` exports a new one";

/// A file that this phase reads, by its content.
#[derive(Debug)]
pub struct ReadFile {
    path: PathBuf,
    file: File,
    state: State,
    facts: FileFacts,
}

/// What changes when a file does: the file behind a path, its size, its time of modification.
#[derive(Debug, PartialEq, Eq)]
struct State {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl State {
    fn of(metadata: &Metadata) -> Self {
        State {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl ReadFile {
    /// Opens a regular file and hashes it.
    ///
    /// # Errors
    /// When it cannot be opened or read.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| failure(&format!("`{}`: {error}", path.display()), "");
        let file = open_regular(path).map_err(failed)?;
        let state = State::of(&file.metadata().map_err(failed)?);
        let sha256 = hash_reader(&file).map_err(failed)?;
        let facts = FileFacts { path: path.display().to_string(), size_bytes: Bytes(state.size), sha256 };
        Ok(ReadFile { path: path.to_owned(), file, state, facts })
    }

    /// What is in it.
    pub fn facts(&self) -> &FileFacts {
        &self.facts
    }

    /// Fails when the path leads to another file now, or the file was written to: what was read by the path since it
    /// was hashed may be something else.
    ///
    /// # Errors
    /// See above.
    pub fn check_path(&self) -> Result<(), Failure> {
        self.check(std::fs::metadata(&self.path))?;
        self.check_content()
    }

    /// Fails when the file was written to since it was hashed. Another file under its name does no harm to what has it
    /// open or mapped.
    ///
    /// # Errors
    /// See above.
    pub fn check_content(&self) -> Result<(), Failure> {
        self.check(self.file.metadata())
    }

    fn check(&self, now: std::io::Result<Metadata>) -> Result<(), Failure> {
        match now {
            Ok(now) if State::of(&now) == self.state => Ok(()),
            _ => Err(failure(&format!("`{}` changed while it was used", self.path.display()), REPLACED)),
        }
    }

    /// Opens a file that a manifest names, and holds it to what the manifest says.
    fn open_named(said: &FileFacts, manifest: &Path) -> Result<Self, Failure> {
        let path = manifest.with_file_name(&said.path);
        let differs = |what: String| {
            let (path, manifest) = (path.display(), manifest.display());
            failure(&format!("`{path}` is not the file that `{manifest}` names: {what}"), REPLACED)
        };
        let expected = said.size_bytes;
        let size = std::fs::metadata(&path).map(|metadata| Bytes(metadata.len())).unwrap_or(expected);
        if size != expected {
            return Err(differs(format!("it has {} bytes instead of {}", size.0, expected.0)));
        }
        let file = Self::open(&path)?;
        if file.facts.sha256 != said.sha256 {
            return Err(differs(format!("its SHA-256 is `{}` instead of `{}`", file.facts.sha256, said.sha256)));
        }
        Ok(file)
    }
}

/// The files of a model, opened and hashed.
#[derive(Debug)]
pub struct ModelFiles {
    graphs: Vec<GraphFiles>,
}

/// The files of one graph: first the one that the engine is given.
#[derive(Debug)]
struct GraphFiles {
    name: String,
    files: Vec<ReadFile>,
}

impl GraphFiles {
    /// Holds the data files that the graph reads to those that its manifest names.
    fn check_data_files(&self, read: &[PathBuf], manifest: &Path) -> Result<(), Failure> {
        let named: Vec<&PathBuf> = self.files[1..].iter().map(|file| &file.path).collect();
        let unnamed = read.iter().find(|file| !named.contains(file)).map(|file| (file, "reads", "does not name"));
        let unread = named.iter().find(|file| !read.contains(file)).map(|file| (*file, "does not read", "names"));
        let Some((file, reads, names)) = unnamed.or(unread) else { return Ok(()) };
        let (graph, file, manifest) = (&self.name, file.display(), manifest.display());
        let reason = format!("graph `{graph}` {reads} the data file `{file}`, which `{manifest}` {names}");
        Err(failure(&reason, "a manifest names every file of a graph and no other"))
    }
}

impl ModelFiles {
    /// Opens an ONNX file, or those of a manifest, with every data file that they name.
    ///
    /// # Errors
    /// When a file cannot be read, is no ONNX model, or is not the one that the manifest names.
    pub fn open_onnx(path: &Path) -> Result<Self, Failure> {
        let manifest = Manifest::is_named_by(path);
        if !manifest {
            // What is no ONNX model is not worth hashing.
            data_files(path).map_err(|e| failure(&e, CUT))?;
        }
        let mut model = Self::open_compiled(path)?;
        for graph in &mut model.graphs {
            let data = data_files(&graph.files[0].path).map_err(|e| failure(&e, CUT))?;
            if manifest {
                graph.check_data_files(&data, path)?;
            } else {
                graph.files.extend(data.iter().map(|path| ReadFile::open(path)).collect::<Result<Vec<_>, _>>()?);
            }
        }
        Ok(model)
    }

    /// Opens a file that a compiler made, or those of a manifest.
    ///
    /// # Errors
    /// When a file cannot be read, or is not the one that the manifest names.
    pub fn open_compiled(path: &Path) -> Result<Self, Failure> {
        if !Manifest::is_named_by(path) {
            let graph = GraphFiles { name: Model::SINGLE.to_owned(), files: vec![ReadFile::open(path)?] };
            return Ok(ModelFiles { graphs: vec![graph] });
        }
        let manifest = Manifest::read(path).map_err(|e| failure(&e, "configs/README.md says what is in a manifest"))?;
        let graph = |ManifestGraph { name, files }: ManifestGraph| {
            let files = files.iter().map(|said| ReadFile::open_named(said, path));
            Ok(GraphFiles { name, files: files.collect::<Result<_, Failure>>()? })
        };
        Ok(ModelFiles { graphs: manifest.graphs.into_iter().map(graph).collect::<Result<_, Failure>>()? })
    }

    /// What an engine is given, by graph.
    pub fn given(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.graphs.iter().map(|graph| (graph.name.as_str(), graph.files[0].path.as_path()))
    }

    /// What is in the files, by graph.
    pub fn facts(&self) -> IndexMap<String, Vec<FileFacts>> {
        let facts = |graph: &GraphFiles| graph.files.iter().map(|file| file.facts().clone()).collect();
        self.graphs.iter().map(|graph| (graph.name.clone(), facts(graph))).collect()
    }

    /// Fails when what an engine read by its path may not be what was hashed.
    ///
    /// # Errors
    /// As [`ReadFile::check_path`].
    pub fn check_paths(&self) -> Result<(), Failure> {
        self.graphs.iter().flat_map(|graph| &graph.files).try_for_each(ReadFile::check_path)
    }

    /// Fails when a file was written to while an engine may have had it mapped.
    ///
    /// # Errors
    /// As [`ReadFile::check_content`].
    pub fn check_contents(&self) -> Result<(), Failure> {
        self.graphs.iter().flat_map(|graph| &graph.files).try_for_each(ReadFile::check_content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ONNX file whose weights lie in a data file beside it.
    fn with_data(folder: &Path) -> PathBuf {
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
        let path = with_data(folder.path());
        let files = ModelFiles::open_onnx(&path).unwrap();
        let facts = files.facts();
        let names = |file: &FileFacts| Path::new(&file.path).file_name().unwrap().display().to_string();
        assert_eq!(facts[Model::SINGLE].iter().map(names).collect::<Vec<_>>(), ["m.onnx", "m.onnx.data"]);
        assert_eq!(facts[Model::SINGLE][1].sha256, crate::hash::hash_file(&folder.path().join("m.onnx.data")).unwrap());
        assert_eq!(files.given().collect::<Vec<_>>(), [(Model::SINGLE, path.as_path())]);
    }

    #[test]
    fn a_fifo_is_refused_at_once_as_a_model_and_as_a_data_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = with_data(folder.path());
        let data = folder.path().join("m.onnx.data");
        std::fs::remove_file(&data).unwrap();
        nix::unistd::mkfifo(&data, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let reason = ModelFiles::open_onnx(&path).unwrap_err().reason;
        assert_eq!(reason, format!("`{}`: is a FIFO, not a regular file", data.display()));
        let reason = ModelFiles::open_onnx(&data).unwrap_err().reason;
        assert_eq!(reason, format!("cannot open the ONNX file `{}`: is a FIFO, not a regular file", data.display()));
        let reason = flagperf_onnx::read_onnx(&path).unwrap_err().to_string();
        assert!(
            reason.ends_with("keeps weight `fc.weight` in `m.onnx.data`: is a FIFO, not a regular file"),
            "{reason}"
        );
    }

    #[test]
    fn a_data_file_may_be_a_link_out_of_the_folder_and_is_hashed_by_its_content() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = with_data(folder.path());
        let (data, target) = (folder.path().join("m.onnx.data"), elsewhere.path().join("blob"));
        let before = ModelFiles::open_onnx(&path).unwrap().facts();
        std::fs::rename(&data, &target).unwrap();
        std::os::unix::fs::symlink(&target, &data).unwrap();
        assert_eq!(ModelFiles::open_onnx(&path).unwrap().facts(), before);
    }

    #[test]
    fn a_manifest_names_every_data_file_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = with_data(folder.path());
        let facts = |name: &str| {
            let path = folder.path().join(name);
            let size_bytes = Bytes(std::fs::metadata(&path).unwrap().len());
            FileFacts { path: name.to_owned(), size_bytes, sha256: crate::hash::hash_file(&path).unwrap() }
        };
        let opened = |names: &[&str]| {
            let files = names.iter().map(|name| facts(name)).collect();
            let manifest = Manifest { graphs: vec![ManifestGraph { name: "g".to_owned(), files }] };
            let at = Manifest::beside(&path);
            std::fs::write(&at, serde_json::to_string(&manifest).unwrap()).unwrap();
            let opened = ModelFiles::open_onnx(&at).map(drop).map_err(|failure| failure.reason);
            opened.map_err(|reason| reason.replace(&folder.path().display().to_string(), ""))
        };
        opened(&["m.onnx", "m.onnx.data"]).unwrap();
        let reason = "graph `g` reads the data file `/m.onnx.data`, which `/m.graphs.json` does not name";
        assert_eq!(opened(&["m.onnx"]), Err(reason.to_owned()));
        std::fs::write(folder.path().join("more"), "x").unwrap();
        let reason = "graph `g` does not read the data file `/more`, which `/m.graphs.json` names";
        assert_eq!(opened(&["m.onnx", "m.onnx.data", "more"]), Err(reason.to_owned()));
    }

    #[test]
    fn a_file_that_changes_while_it_is_used_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.engine");
        std::fs::write(&path, "one").unwrap();
        let files = ModelFiles::open_compiled(&path).unwrap();
        files.check_paths().unwrap();
        let other = folder.path().join("other");
        std::fs::write(&other, "two").unwrap();
        std::fs::rename(&other, &path).unwrap();
        let reason = files.check_paths().unwrap_err().reason;
        assert_eq!(reason, format!("`{}` changed while it was used", path.display()));
        files.check_contents().expect("what is open is what was hashed");
        let files = ModelFiles::open_compiled(&path).unwrap();
        std::fs::write(&path, "three").unwrap();
        assert!(files.check_contents().is_err());
    }

    #[test]
    fn a_cut_onnx_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = with_data(folder.path());
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let reason = ModelFiles::open_onnx(&path).unwrap_err().reason;
        assert!(reason.contains("m.onnx` is not a complete ONNX model"), "{reason}");
    }
}
