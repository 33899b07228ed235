//! The data files of an ONNX file: finds every file that contains external data, and checks its location.
//!
//! Knows nothing about operators. Also searches the parts that [`crate::read_onnx`] keeps without interpreting them,
//! because engines read them.

use std::path::{Component, Path, PathBuf};

use prost::Message;

use super::proto::{
    AttributeProto, EXTERNAL, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto,
};
use super::{OnnxError, read};

/// The deepest nesting of graphs in attributes of nodes.
const DEPTH_MAX: usize = 64;

/// Returns every data file that an ONNX file references for weights of its graph, of subgraphs and of local functions,
/// each once, in the order of the file. Does not access the data files.
///
/// # Errors
/// When the file is missing or not an ONNX model, or references a data file outside its own folder.
pub fn data_files(path: &Path) -> Result<Vec<PathBuf>, OnnxError> {
    let malformed = |reason: String| OnnxError::Malformed { path: path.to_owned(), reason };
    let (_, model) = read::decode(path)?;
    let mut collector = DataFileCollector { locations: Vec::new() };
    collector.model(&model).map_err(malformed)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    Ok(collector.locations.into_iter().map(|location| folder.join(location)).collect())
}

/// Returns the location of a tensor's external data; `None` for a tensor without external data.
///
/// # Errors
/// When the location is missing, or outside the folder of the ONNX file.
pub(super) fn location(tensor: &TensorProto) -> Result<Option<&str>, String> {
    if tensor.data_location != Some(EXTERNAL) {
        return Ok(None);
    }
    let entry = tensor.external_data.iter().find(|entry| entry.key.as_deref() == Some("location"));
    let location = entry.and_then(|entry| entry.value.as_deref()).ok_or("external data without a location")?;
    let mut parts = Path::new(location).components();
    let inside = parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if inside {
        Ok(Some(location))
    } else {
        Err(format!("its data file `{location}` is outside the folder of the ONNX file"))
    }
}

/// Collects the locations of external data in a model.
struct DataFileCollector {
    locations: Vec<String>,
}

impl DataFileCollector {
    fn model(&mut self, model: &ModelProto) -> Result<(), String> {
        model.graph.iter().try_for_each(|graph| self.graph(graph, 0))?;
        for encoded in &model.functions {
            self.nodes(&decode::<FunctionProto>(encoded)?.node, 0)?;
        }
        Ok(())
    }

    fn graph(&mut self, graph: &GraphProto, depth: usize) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!("graphs are nested more than {DEPTH_MAX} deep"));
        }
        graph.initializer.iter().try_for_each(|tensor| self.tensor(tensor))?;
        graph.sparse_initializer.iter().try_for_each(|encoded| self.sparse(encoded))?;
        self.nodes(&graph.node, depth)
    }

    fn nodes(&mut self, nodes: &[NodeProto], depth: usize) -> Result<(), String> {
        nodes.iter().flat_map(|node| &node.attribute).try_for_each(|attribute| self.attribute(attribute, depth))
    }

    fn attribute(&mut self, attribute: &AttributeProto, depth: usize) -> Result<(), String> {
        attribute.t.iter().try_for_each(|tensor| self.tensor(tensor))?;
        attribute.tensors.iter().try_for_each(|encoded| self.tensor(&decode(encoded)?))?;
        attribute.sparse_tensor.iter().chain(&attribute.sparse_tensors).try_for_each(|encoded| self.sparse(encoded))?;
        attribute.g.iter().chain(&attribute.graphs).try_for_each(|encoded| self.graph(&decode(encoded)?, depth + 1))
    }

    fn sparse(&mut self, encoded: &[u8]) -> Result<(), String> {
        let SparseTensorProto { values, indices } = decode(encoded)?;
        values.iter().chain(&indices).try_for_each(|tensor| self.tensor(tensor))
    }

    fn tensor(&mut self, tensor: &TensorProto) -> Result<(), String> {
        let named = |reason| format!("weight `{}`: {reason}", tensor.name.as_deref().unwrap_or_default());
        let location = location(tensor).map_err(named)?;
        if let Some(location) = location.filter(|location| !self.locations.iter().any(|known| known == location)) {
            self.locations.push(location.to_owned());
        }
        Ok(())
    }
}

fn decode<M: Message + Default>(encoded: &[u8]) -> Result<M, String> {
    M::decode(encoded).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::proto::StringStringEntryProto;
    use super::*;

    fn tensor(location: &str) -> TensorProto {
        let entry = StringStringEntryProto { key: Some("location".to_owned()), value: Some(location.to_owned()) };
        TensorProto { data_location: Some(EXTERNAL), external_data: vec![entry], ..TensorProto::default() }
    }

    fn node(attribute: AttributeProto) -> NodeProto {
        NodeProto { attribute: vec![attribute], ..NodeProto::default() }
    }

    /// Returns the names of the data files of a model with this graph.
    fn data_file_names(graph: GraphProto, functions: Vec<Vec<u8>>) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let model = ModelProto { graph: Some(graph), functions, ..ModelProto::default() };
        std::fs::write(&path, model.encode_to_vec()).unwrap();
        let name = |file: PathBuf| file.strip_prefix(folder.path()).unwrap().display().to_string();
        data_files(&path).map(|files| files.into_iter().map(name).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn each_data_file_is_found_once_wherever_a_tensor_can_be() {
        let inner = GraphProto { initializer: vec![tensor("b")], ..GraphProto::default() };
        let branch = AttributeProto { g: Some(inner.encode_to_vec()), ..AttributeProto::default() };
        let constant = AttributeProto { t: Some(tensor("c")), ..AttributeProto::default() };
        let list = AttributeProto { tensors: vec![tensor("d").encode_to_vec()], ..AttributeProto::default() };
        let values = SparseTensorProto { values: Some(tensor("e")), indices: None };
        let sparse = AttributeProto { sparse_tensor: Some(values.encode_to_vec()), ..AttributeProto::default() };
        let function = AttributeProto { t: Some(tensor("f/g")), ..AttributeProto::default() };
        let graph = GraphProto {
            initializer: vec![tensor("a"), tensor("a")],
            node: vec![node(branch), node(constant), node(list), node(sparse)],
            ..GraphProto::default()
        };
        let function = FunctionProto { node: vec![node(function)], ..FunctionProto::default() };
        assert_eq!(data_file_names(graph, vec![function.encode_to_vec()]).unwrap(), ["a", "b", "c", "d", "e", "f/g"]);
    }

    #[test]
    fn a_data_file_of_a_subgraph_outside_the_folder_is_refused() {
        let inner = GraphProto { initializer: vec![tensor("../w")], ..GraphProto::default() };
        let branch = AttributeProto { g: Some(inner.encode_to_vec()), ..AttributeProto::default() };
        let error =
            data_file_names(GraphProto { node: vec![node(branch)], ..GraphProto::default() }, Vec::new()).unwrap_err();
        assert!(error.ends_with("its data file `../w` is outside the folder of the ONNX file"), "{error}");
    }

    #[test]
    fn graphs_that_are_nested_too_deeply_are_refused() {
        let mut graph = GraphProto::default();
        for _ in 0..100 {
            let attribute = AttributeProto { g: Some(graph.encode_to_vec()), ..AttributeProto::default() };
            graph = GraphProto { node: vec![node(attribute)], ..GraphProto::default() };
        }
        assert!(data_file_names(graph, Vec::new()).unwrap_err().ends_with("graphs are nested more than 64 deep"));
    }
}
