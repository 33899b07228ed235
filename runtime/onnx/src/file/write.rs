//! Writes a graph as an ONNX file: the same graph gives the same bytes.
//!
//! Knows no operator.

use std::collections::HashSet;
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::proto::{
    DimensionProto, EXTERNAL, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ShapeProto,
    StringStringEntryProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use super::stream::{self, Pending};
use super::{OnnxError, WEIGHTS, attribute, code_of, initializer};
use crate::{Dim, Graph, Node, TensorSpec, WeightError, WeightReader, byte_count};

/// A protobuf message cannot be longer; some room is left for what is not weights.
const MAX_INLINE_BYTES: u64 = (1 << 31) - (1 << 26);
/// Weights shorter than this stay in the ONNX file: shapes and axes must be readable without the data file.
const MIN_EXTERNAL_BYTES: usize = 1024;
/// Where weights begin in the data file: a multiple of a memory page, so that readers can map them.
const ALIGNMENT: u64 = 4096;

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// Weights of more bytes than this together go into a data file beside the ONNX file.
    pub external_above: u64,
}

impl Default for WriteOptions {
    /// External data beyond what one file can hold (2 GiB).
    fn default() -> Self {
        WriteOptions { external_above: MAX_INLINE_BYTES }
    }
}

/// Writes a graph to `path`, its weights too; beyond 2 GiB those lie in `<path>.data`. Both appear whole or not at all.
///
/// Returns the files written.
///
/// # Errors
/// When a file cannot be written (no such folder, disk full) or a weight cannot be read.
pub fn write_onnx(graph: &Graph, path: &Path) -> Result<Vec<PathBuf>, OnnxError> {
    write_onnx_with(graph, path, WriteOptions::default())
}

/// As [`write_onnx`], with options.
///
/// # Errors
/// As [`write_onnx`].
pub fn write_onnx_with(graph: &Graph, path: &Path, options: WriteOptions) -> Result<Vec<PathBuf>, OnnxError> {
    let data_path = path.with_file_name(data_name(path));
    if let Some(replaced) = [path, &data_path].into_iter().find(|path| reads_from(graph, path)) {
        return Err(OnnxError::Overwrite { path: replaced.to_owned() });
    }
    write_files(graph, path, &data_path, options).map_err(|failure| match failure {
        Failure::File(source) => OnnxError::Write { path: path.to_owned(), source },
        Failure::Weight(source) => OnnxError::Weight { path: path.to_owned(), source },
    })
}

/// What went wrong, before it is known to the caller as one of the file's errors.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error(transparent)]
    Weight(#[from] WeightError),
}

/// The data file that belongs to an ONNX file.
fn data_name(path: &Path) -> String {
    format!("{}.data", path.file_name().unwrap_or_default().to_string_lossy())
}

/// Whether a weight's bytes lie in a file: replacing it would leave the graph with bytes of another.
fn reads_from(graph: &Graph, path: &Path) -> bool {
    let Ok(target) = path.canonicalize() else { return false };
    let sources: HashSet<&Path> = graph.weights.values().filter_map(|weight| weight.source.path()).collect();
    sources.into_iter().any(|source| source.canonicalize().is_ok_and(|source| source == target))
}

fn write_files(graph: &Graph, path: &Path, data_path: &Path, options: WriteOptions) -> Result<Vec<PathBuf>, Failure> {
    if path.file_name().is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it names no file").into());
    }
    let mut initializers = pending(graph);
    let mut reader = WeightReader::new(graph);
    let mut written = vec![path.to_owned()];
    let total: u64 = initializers.iter().filter_map(|pending| pending.raw).map(|raw| raw as u64).sum();
    let data = if total > options.external_above {
        written.push(data_path.to_owned());
        Some(write_data(&mut reader, &mut initializers, data_path)?)
    } else {
        None
    };
    let mut file = temporary(path)?;
    write_model(&mut BufWriter::new(&mut file), graph, &initializers, &mut reader)?;
    if let Some(file) = data {
        persist(file, data_path)?;
    }
    persist(file, path)?;
    Ok(written)
}

fn write_model(
    out: &mut impl Write,
    graph: &Graph,
    initializers: &[Pending],
    reader: &mut WeightReader<'_>,
) -> Result<(), Failure> {
    stream::write::<Failure>(out, &model(graph), &graph_proto(graph), initializers, |name| Ok(reader.tensor(name)?))?;
    Ok(out.flush()?)
}

/// Moves the elements of all but the shortest weights into the data file, and says in their headers where they are.
fn write_data(
    reader: &mut WeightReader<'_>,
    initializers: &mut [Pending],
    path: &Path,
) -> Result<NamedTempFile, Failure> {
    let location = path.file_name().unwrap_or_default().to_string_lossy();
    let mut file = temporary(path)?;
    let mut out = BufWriter::new(&mut file);
    let mut position = 0u64;
    for pending in initializers {
        let Some(length) = pending.raw.filter(|raw| *raw >= MIN_EXTERNAL_BYTES) else { continue };
        let offset = position.next_multiple_of(ALIGNMENT);
        io::copy(&mut io::repeat(0).take(offset - position), &mut out)?;
        out.write_all(reader.tensor(pending.name())?.bytes())?;
        position = offset + length as u64;
        let entry = |key: &str, value: String| StringStringEntryProto { key: Some(key.to_owned()), value: Some(value) };
        pending.raw = None;
        pending.header.data_location = Some(EXTERNAL);
        pending.header.external_data = vec![
            entry("location", location.clone().into_owned()),
            entry("offset", offset.to_string()),
            entry("length", length.to_string()),
        ];
    }
    out.flush()?;
    drop(out);
    Ok(file)
}

/// A file beside `path` that vanishes unless it is persisted.
fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The umask takes from these what the user does not want; a private file would be useless in a container.
    let permissions = Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(".onnx").permissions(permissions).tempfile_in(folder)
}

/// Flushes a file to disk and gives it its name.
fn persist(file: NamedTempFile, path: &Path) -> io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Everything of the model but the graph.
fn model(graph: &Graph) -> ModelProto {
    let set = |domain: &str, version| OperatorSetIdProto { domain: Some(domain.to_owned()), version: Some(version) };
    let others = graph.domains.iter().map(|(domain, version)| set(domain, *version));
    let (key, random) = WEIGHTS;
    let noted = StringStringEntryProto { key: Some(key.to_owned()), value: Some(random.to_owned()) };
    ModelProto {
        metadata_props: graph.weights_are_random().then_some(noted).into_iter().collect(),
        ir_version: Some(ir_version(graph.opset)),
        producer_name: Some("flagperf".to_owned()),
        producer_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        graph: None,
        opset_import: std::iter::once(set("", graph.opset)).chain(others).collect(),
        functions: graph.functions.clone(),
    }
}

/// The file format's version that came with an operator set (table in ONNX's docs/Versioning.md); the oldest that
/// serves, so that old readers can read.
fn ir_version(opset: i64) -> i64 {
    match opset {
        ..=14 => 7,
        15..=18 => 8,
        19..=20 => 9,
        21..=22 => 10,
        _ => 11,
    }
}

/// The graph without its initializers.
fn graph_proto(graph: &Graph) -> GraphProto {
    let is_output = |name: &str| graph.outputs.iter().any(|output| output.name == name);
    GraphProto {
        node: graph.nodes.iter().map(node).collect(),
        name: Some(if graph.name.is_empty() { "graph".to_owned() } else { graph.name.clone() }),
        input: graph.inputs.iter().map(|input| value_info(&input.name, &input.spec)).collect(),
        output: graph.outputs.iter().map(|output| value_info(&output.name, &output.spec)).collect(),
        value_info: graph
            .values
            .iter()
            .filter(|(name, _)| !is_output(name))
            .map(|(name, spec)| value_info(name, spec))
            .collect(),
        ..GraphProto::default()
    }
}

fn node(node: &Node) -> NodeProto {
    NodeProto {
        input: node.inputs.clone(),
        output: node.outputs.clone(),
        name: Some(node.name.clone()),
        op_type: Some(node.op.clone()),
        attribute: node.attributes.iter().map(|(name, value)| attribute::encode(name, value)).collect(),
        domain: (!node.domain.is_empty()).then(|| node.domain.clone()),
    }
}

pub(super) fn value_info(name: &str, spec: &TensorSpec) -> ValueInfoProto {
    let dim = |dim: &Dim| match dim {
        Dim::Fixed(size) => DimensionProto { dim_value: Some(*size as i64), dim_param: None },
        Dim::Named(name) => DimensionProto { dim_value: None, dim_param: Some(name.clone()) },
        Dim::Unknown => DimensionProto::default(),
    };
    let shape = ShapeProto { dim: spec.dims.iter().map(dim).collect() };
    let tensor_type = TensorTypeProto { elem_type: Some(code_of(spec.dtype)), shape: Some(shape) };
    ValueInfoProto { name: Some(name.to_owned()), r#type: Some(TypeProto { tensor_type: Some(tensor_type) }) }
}

/// The initializers without their elements. The role is kept as a comment: ONNX has no place of its own for it.
fn pending(graph: &Graph) -> Vec<Pending> {
    let one = |(name, weight): (&String, &crate::Weight)| {
        let shape = weight.spec.fixed_shape().unwrap_or_default();
        let mut header = initializer::header(name, &shape, weight.spec.dtype);
        header.doc_string = Some(weight.role.name().to_owned());
        Pending { raw: byte_count(&shape, weight.spec.dtype), header }
    };
    graph.weights.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;

    /// A disk with room for so many bytes.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if bytes.len() > self.0 {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            self.0 -= bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_an_error_wherever_it_comes() {
        let mut b = GraphBuilder::new("g");
        let x = b.input("x", "N,64,f32".parse().unwrap()).unwrap();
        let y = crate::layers::linear(&mut b, "fc", &x, crate::layers::Linear::new(64, 8)).unwrap();
        b.output("y", &y).unwrap();
        let graph = b.finish().unwrap();
        let write = |room| write_model(&mut Disk(room), &graph, &pending(&graph), &mut WeightReader::new(&graph));
        write(4096).unwrap();
        for room in (0..2048).step_by(64) {
            match write(room) {
                Err(Failure::File(error)) => assert_eq!(error.kind(), io::ErrorKind::StorageFull),
                other => panic!("{room}: {other:?}"),
            }
        }
    }
}
