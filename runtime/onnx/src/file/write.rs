//! Writes a graph as an ONNX file. Equal graphs produce equal bytes.
//!
//! Knows nothing about operators.

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
use super::stream::{self, PendingInitializer};
use super::{OnnxError, RANDOM_WEIGHTS_ENTRY, attribute, initializer, onnx_code};
use crate::{Dim, Graph, Node, TensorSpec, WeightError, WeightReader, byte_count};

/// The most bytes of weights in the ONNX file: the longest protobuf message, less some room for the rest of the model.
const MAX_INLINE_BYTES: u64 = (1 << 31) - (1 << 26);
/// Weights with fewer bytes stay in the ONNX file, because shapes and axes must be readable without the data file.
const MIN_EXTERNAL_BYTES: usize = 1024;
/// Alignment of weights in the data file: the size of a memory page, so that readers can map them.
const ALIGNMENT: u64 = 4096;

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// If all weights together have more bytes than this, they are stored in a data file next to the ONNX file.
    pub external_above: u64,
}

impl Default for WriteOptions {
    /// Uses a data file only when the weights do not fit in one protobuf message (2 GiB).
    fn default() -> Self {
        WriteOptions { external_above: MAX_INLINE_BYTES }
    }
}

/// Writes a graph and its weights to `path`. Weights of more than 2 GiB are stored in `<path>.data`. Each file appears
/// complete or not at all.
///
/// Returns the files written.
///
/// # Errors
/// When a file cannot be written (no such folder, disk full) or a weight cannot be read.
pub fn write_onnx(graph: &Graph, path: &Path) -> Result<Vec<PathBuf>, OnnxError> {
    write_onnx_with(graph, path, WriteOptions::default())
}

/// Does the same as [`write_onnx`], with options.
///
/// # Errors
/// As [`write_onnx`].
pub fn write_onnx_with(graph: &Graph, path: &Path, options: WriteOptions) -> Result<Vec<PathBuf>, OnnxError> {
    let data_path = path.with_file_name(data_file_name(path));
    if let Some(replaced) = [path, &data_path].into_iter().find(|path| reads_from(graph, path)) {
        return Err(OnnxError::Overwrite { path: replaced.to_owned() });
    }
    write_files(graph, path, &data_path, options).map_err(|failure| match failure {
        WriteFailure::File(source) => OnnxError::Write { path: path.to_owned(), source },
        WriteFailure::Weight(source) => OnnxError::Weight { path: path.to_owned(), source },
    })
}

/// An error during writing, before the path is added to it.
#[derive(Debug, thiserror::Error)]
enum WriteFailure {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error(transparent)]
    Weight(#[from] WeightError),
}

/// Returns the name of the data file of an ONNX file.
fn data_file_name(path: &Path) -> String {
    format!("{}.data", path.file_name().unwrap_or_default().to_string_lossy())
}

/// Returns whether the graph reads weights from a file. If that file were replaced, the graph would read other bytes.
fn reads_from(graph: &Graph, path: &Path) -> bool {
    let Ok(target) = path.canonicalize() else { return false };
    let sources: HashSet<&Path> = graph.weights.values().filter_map(|weight| weight.source.path()).collect();
    sources.into_iter().any(|source| source.canonicalize().is_ok_and(|source| source == target))
}

fn write_files(
    graph: &Graph,
    path: &Path,
    data_path: &Path,
    options: WriteOptions,
) -> Result<Vec<PathBuf>, WriteFailure> {
    if path.file_name().is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name").into());
    }
    let mut initializers = pending_initializers(graph);
    let mut reader = WeightReader::new(graph);
    let mut written = vec![path.to_owned()];
    let total: u64 = initializers.iter().filter_map(|pending| pending.raw).map(|raw| raw as u64).sum();
    let data = if total > options.external_above {
        written.push(data_path.to_owned());
        Some(write_data(&mut reader, &mut initializers, data_path)?)
    } else {
        None
    };
    let mut file = create_temporary(path)?;
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
    initializers: &[PendingInitializer],
    reader: &mut WeightReader<'_>,
) -> Result<(), WriteFailure> {
    stream::write::<WriteFailure>(out, &model_proto(graph), &graph_proto(graph), initializers, |name| {
        Ok(reader.tensor(name)?)
    })?;
    Ok(out.flush()?)
}

/// Writes the elements of all but the smallest weights to the data file, and stores their location in their headers.
fn write_data(
    reader: &mut WeightReader<'_>,
    initializers: &mut [PendingInitializer],
    path: &Path,
) -> Result<NamedTempFile, WriteFailure> {
    let location = path.file_name().unwrap_or_default().to_string_lossy();
    let mut file = create_temporary(path)?;
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

/// Creates a file in the folder of `path` that is deleted unless it is persisted.
fn create_temporary(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The umask restricts these permissions. A private file would be useless in a container.
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

/// Returns the message of the model without its graph.
fn model_proto(graph: &Graph) -> ModelProto {
    let set = |domain: &str, version| OperatorSetIdProto { domain: Some(domain.to_owned()), version: Some(version) };
    let others = graph.domains.iter().map(|(domain, version)| set(domain, *version));
    let (key, random) = RANDOM_WEIGHTS_ENTRY;
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

/// Returns the version of the file format that was released with an operator set (table in ONNX's docs/Versioning.md):
/// the oldest one that suffices, so that old readers can read the file.
fn ir_version(opset: i64) -> i64 {
    match opset {
        ..=14 => 7,
        15..=18 => 8,
        19..=20 => 9,
        21..=22 => 10,
        _ => 11,
    }
}

/// Returns the message of the graph without its initializers.
fn graph_proto(graph: &Graph) -> GraphProto {
    let is_output = |name: &str| graph.outputs.iter().any(|output| output.name == name);
    GraphProto {
        node: graph.nodes.iter().map(node_proto).collect(),
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

fn node_proto(node: &Node) -> NodeProto {
    NodeProto {
        input: node.inputs.clone(),
        output: node.outputs.clone(),
        name: Some(node.name.clone()),
        op_type: Some(node.op.clone()),
        attribute: node.attributes.iter().map(|(name, value)| attribute::encode(name, value)).collect(),
        domain: (!node.domain.is_empty()).then(|| node.domain.clone()),
        ..NodeProto::default()
    }
}

pub(super) fn value_info(name: &str, spec: &TensorSpec) -> ValueInfoProto {
    let dim = |dim: &Dim| match dim {
        Dim::Fixed(size) => DimensionProto { dim_value: Some(*size as i64), dim_param: None },
        Dim::Named(name) => DimensionProto { dim_value: None, dim_param: Some(name.clone()) },
        Dim::Unknown => DimensionProto::default(),
    };
    let shape = ShapeProto { dim: spec.dims.iter().map(dim).collect() };
    let tensor_type = TensorTypeProto { elem_type: Some(onnx_code(spec.dtype)), shape: Some(shape) };
    ValueInfoProto { name: Some(name.to_owned()), r#type: Some(TypeProto { tensor_type: Some(tensor_type) }) }
}

/// Returns the initializers without their elements. The role is stored as a comment, because ONNX has no field for it.
fn pending_initializers(graph: &Graph) -> Vec<PendingInitializer> {
    let pending = |(name, weight): (&String, &crate::Weight)| {
        let shape = weight.spec.fixed_shape().unwrap_or_default();
        let mut header = initializer::encode_header(name, &shape, weight.spec.dtype);
        header.doc_string = Some(weight.role.name().to_owned());
        PendingInitializer { raw: byte_count(&shape, weight.spec.dtype), header }
    };
    graph.weights.iter().map(pending).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;

    /// A disk with room for a number of bytes.
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
    fn a_full_disk_is_reported_at_every_point_of_writing() {
        let mut b = GraphBuilder::new("g");
        let x = b.input("x", "N,64,f32".parse().unwrap()).unwrap();
        let y = crate::layers::linear(&mut b, "fc", &x, crate::layers::Linear::new(64, 8)).unwrap();
        b.output("y", &y).unwrap();
        let graph = b.finish().unwrap();
        let write =
            |room| write_model(&mut Disk(room), &graph, &pending_initializers(&graph), &mut WeightReader::new(&graph));
        write(4096).unwrap();
        for room in (0..2048).step_by(64) {
            match write(room) {
                Err(WriteFailure::File(error)) => assert_eq!(error.kind(), io::ErrorKind::StorageFull),
                other => panic!("{room}: {other:?}"),
            }
        }
    }
}
