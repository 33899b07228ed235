//! Reads an ONNX file: the graph at once, the weights' bytes only when they are requested.
//!
//! Knows no operators except those whose inputs determine a weight's role.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use prost::Message;
use prost::bytes::Bytes;

use super::proto::{EXTERNAL, GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto, ValueInfoProto};
use super::role::RoleGuesser;
use super::value_info::{declared_spec, unknown_part};
use super::{OnnxError, RANDOM_WEIGHTS_ENTRY, attribute, external, functions, initializer};
use crate::operators::OPSET_NEWEST;
use crate::weights::MappedFile;
use crate::{Graph, Node, TensorSpec, ValueInfo, Weight, WeightRole, WeightSource, byte_count};
use flagperf_core::file_kind;
use flagperf_core::regular_file::open_regular;

/// The longest protobuf message. Larger models store their weights in data files.
const BYTES_MAX: u64 = (1 << 31) - 1;
/// The most bytes of an initializer that is kept as a value: a shape, an axis or a bound.
const MAX_VALUE_BYTES: usize = 1024;

/// Reads a graph. Weights stay in the file (or its data files) until they are requested. Calls of the file's own functions
/// are replaced by their nodes. Operators unknown to this crate are kept as they are.
///
/// # Errors
/// When the file is missing, truncated or not an ONNX model, a data file is missing or too short, or an element type is
/// not supported.
pub fn read_onnx(path: &Path) -> Result<Graph, OnnxError> {
    let (file, model) = decode(path)?;
    let reader = ModelReader { path, start: Some(file.bytes().as_ptr() as usize) };
    let proto = model.graph.as_ref().ok_or_else(|| reader.malformed("it has no graph"))?;
    if !proto.sparse_initializer.is_empty() {
        return Err(reader.unsupported("sparse weights"));
    }
    let is_standard = |domain: &Option<String>| matches!(domain.as_deref(), None | Some("" | "ai.onnx"));
    let (standard, others): (Vec<_>, Vec<_>) = model.opset_import.iter().partition(|set| is_standard(&set.domain));
    let opset = standard.first().and_then(|set| set.version);
    if let Some(version) = opset.filter(|version| !(1..=OPSET_NEWEST).contains(version)) {
        let what = format!("version {version} of the standard operator set (known: 1 to {OPSET_NEWEST})");
        return Err(reader.unsupported(what));
    }
    if standard.len() > 1 {
        return Err(reader.malformed("it specifies the version of the standard operator set twice"));
    }
    let domain = |set: &&super::proto::OperatorSetIdProto| {
        (set.domain.clone().unwrap_or_default(), set.version.unwrap_or_default())
    };
    let opset =
        opset.ok_or_else(|| reader.malformed("it does not specify the version of the standard operator set"))?;
    let in_functions = |reason| OnnxError::Functions { path: path.to_owned(), reason };
    let (proto, functions) = functions::inline(&model, proto, opset).map_err(in_functions)?;
    let graph = Graph {
        opset,
        domains: others.iter().map(domain).collect(),
        functions,
        declares_random_weights: model.metadata_props.iter().any(is_random_note),
        ..reader.graph(&proto)?
    };
    reader.check_definitions(&graph)?;
    reader.with_outputs(graph, &proto)
}

/// Maps an ONNX file and decodes its message.
pub(super) fn decode(path: &Path) -> Result<(MappedFile, ModelProto), OnnxError> {
    let file = MappedFile::open(path).map_err(|source| OnnxError::Open { path: path.to_owned(), source })?;
    let malformed = |reason: String| OnnxError::Malformed { path: path.to_owned(), reason };
    if file.bytes().len() as u64 > BYTES_MAX {
        return Err(malformed(format!(
            "it has {} bytes (a protobuf message has at most {BYTES_MAX})",
            file.bytes().len()
        )));
    }
    let other = |reason: String| malformed(file_kind::reason_for(file.bytes(), || reason));
    let model = ModelProto::decode(Bytes::from_owner(file.clone())).map_err(|error| other(error.to_string()))?;
    if model.graph.is_none() {
        return Err(other("it has no graph".to_owned()));
    }
    Ok((file, model))
}

fn is_random_note(entry: &StringStringEntryProto) -> bool {
    entry.key.as_deref().zip(entry.value.as_deref()) == Some(RANDOM_WEIGHTS_ENTRY)
}

/// Converts the messages of one file to a graph.
pub(super) struct ModelReader<'a> {
    path: &'a Path,
    /// Address of the file's first byte, from which the offset of a weight is computed; `None` for a message that is not
    /// in a mapped file, whose weights become values.
    start: Option<usize>,
}

impl<'a> ModelReader<'a> {
    /// Returns a reader of a message in memory. `name` appears in errors.
    pub(super) fn in_memory(name: &'a Path) -> Self {
        ModelReader { path: name, start: None }
    }

    /// Converts a subgraph: as a graph, but inputs of unknown shape or type are missing, and all outputs.
    pub(super) fn body(&self, proto: &GraphProto) -> Result<Graph, OnnxError> {
        let input = proto.input.iter().filter(|info| declared_spec(info).is_some()).cloned().collect();
        let graph = self.graph(&GraphProto { input, ..proto.clone() })?;
        self.check_definitions(&graph)?;
        Ok(graph)
    }

    fn malformed(&self, reason: impl Into<String>) -> OnnxError {
        OnnxError::Malformed { path: self.path.to_owned(), reason: reason.into() }
    }

    fn unsupported(&self, what: impl Into<String>) -> OnnxError {
        OnnxError::Unsupported { path: self.path.to_owned(), what: what.into() }
    }

    fn graph(&self, proto: &GraphProto) -> Result<Graph, OnnxError> {
        let nodes = self.nodes(&proto.node)?;
        let role_guesser = RoleGuesser::from_nodes(&nodes);
        let mut weights = IndexMap::new();
        for tensor in &proto.initializer {
            let name = tensor.name.clone().unwrap_or_default();
            if weights.insert(name.clone(), self.weight(tensor, &role_guesser)?).is_some() {
                return Err(self.malformed(format!("two weights have the name `{name}`")));
            }
        }
        let mut inputs = Vec::new();
        // Up to version 3 of the format, the inputs include the weights.
        for info in proto.input.iter().filter(|info| !weights.contains_key(info.name.as_deref().unwrap_or_default())) {
            let name = info.name.clone().unwrap_or_default();
            let no_shape = || self.unsupported(format!("an input `{name}` of {}", unknown_part(info)));
            inputs.push(ValueInfo { spec: declared_spec(info).ok_or_else(no_shape)?, name: name.clone() });
        }
        let named = |info: &ValueInfoProto| Some((info.name.clone()?, declared_spec(info)?));
        let values = proto.value_info.iter().chain(&proto.output).filter_map(named);
        let values = values.filter(|(name, _)| !weights.contains_key(name)).collect();
        let name = proto.name.clone().unwrap_or_default();
        Ok(Graph { name, inputs, nodes, weights, values, ..Graph::default() })
    }

    fn nodes(&self, protos: &[NodeProto]) -> Result<Vec<Node>, OnnxError> {
        let mut names: HashSet<String> = protos.iter().filter_map(|proto| proto.name.clone()).collect();
        let node = |(index, proto): (usize, &NodeProto)| {
            let op = proto.op_type.clone().unwrap_or_default();
            let mut name = proto.name.clone().unwrap_or_default();
            if name.is_empty() {
                name = format!("{op}_{index}");
                while !names.insert(name.clone()) {
                    name.push('_');
                }
            }
            let mut attributes = IndexMap::new();
            for attribute in &proto.attribute {
                let value = attribute::decode(attribute)
                    .map_err(|reason| self.malformed(format!("an attribute of node `{name}`: {reason}")))?;
                attributes.insert(attribute.name.clone().unwrap_or_default(), value);
            }
            let (inputs, outputs) = (proto.input.clone(), proto.output.clone());
            // The standard domain has two names.
            let domain = proto.domain.clone().filter(|domain| domain != "ai.onnx").unwrap_or_default();
            Ok(Node { name, op, domain, inputs, outputs, attributes })
        };
        // Nobody can read the result of a node without outputs.
        protos.iter().enumerate().filter(|(_, proto)| !proto.output.is_empty()).map(node).collect()
    }

    fn weight(&self, proto: &TensorProto, role_guesser: &RoleGuesser) -> Result<Weight, OnnxError> {
        let name = proto.name.clone().unwrap_or_default();
        let wrong = |reason: String| self.malformed(format!("weight `{name}`: {reason}"));
        let Some((shape, dtype)) = initializer::decode_shape(proto).map_err(wrong)? else {
            let code = proto.data_type.unwrap_or(0);
            let dtype = super::type_name(i64::from(code));
            return Err(self.unsupported(format!("a weight `{name}` of the element type `{dtype}`")));
        };
        let bytes = byte_count(&shape, dtype).unwrap_or(usize::MAX);
        let source = match (&proto.raw_data, self.start) {
            (_, None) if proto.data_location == Some(EXTERNAL) => {
                return Err(self.unsupported(format!("the weight `{name}` in a data file")));
            }
            _ if proto.data_location == Some(EXTERNAL) => self.external(&name, proto, dtype, bytes)?,
            (Some(raw), Some(start)) if raw.len() == bytes && bytes > MAX_VALUE_BYTES => WeightSource::External {
                path: self.path.to_owned(),
                offset: (raw.as_ptr() as usize - start) as u64,
                length: raw.len() as u64,
                dtype,
            },
            _ => match initializer::decode_tensor(proto).map_err(wrong)? {
                Some(tensor) => WeightSource::Value(tensor),
                None => return Err(self.malformed(format!("weight `{name}` has no elements"))),
            },
        };
        let spec = TensorSpec::new(shape, dtype);
        let noted = WeightRole::ALL.into_iter().find(|role| proto.doc_string.as_deref() == Some(role.name()));
        Ok(Weight { role: noted.unwrap_or_else(|| role_guesser.guess(&name, &spec)), spec, source })
    }

    fn external(
        &self,
        name: &str,
        proto: &TensorProto,
        dtype: crate::DType,
        bytes: usize,
    ) -> Result<WeightSource, OnnxError> {
        let entries: HashMap<&str, &str> =
            proto.external_data.iter().filter_map(|e| Some((e.key.as_deref()?, e.value.as_deref()?))).collect();
        let wrong = |reason: &str| self.malformed(format!("weight `{name}`: {reason}"));
        let number = |key: &str, default: u64| match entries.get(key) {
            Some(text) => {
                text.parse::<u64>().map_err(|_| wrong(&format!("the {key} `{text}` of its data is not a number")))
            }
            None => Ok(default),
        };
        let location = external::location(proto).map_err(|reason| wrong(&reason))?.unwrap_or_default();
        let (offset, length) = (number("offset", 0)?, number("length", bytes as u64)?);
        let path = self.path.parent().unwrap_or(Path::new("")).join(location);
        let missing = |source| OnnxError::ExternalData {
            path: self.path.to_owned(),
            data: PathBuf::from(location),
            weight: name.to_owned(),
            source,
        };
        let size = open_regular(&path).and_then(|file| file.metadata()).map_err(missing)?.len();
        if length != bytes as u64 || offset.checked_add(length).is_none_or(|end| end > size) {
            return Err(wrong(&format!(
                "it needs {bytes} bytes, its data is {length} bytes from byte {offset} of `{location}` ({size} bytes)"
            )));
        }
        Ok(WeightSource::External { path, offset, length, dtype })
    }

    /// Checks that each value has one definition: an engine would read the last, or the first.
    fn check_definitions(&self, graph: &Graph) -> Result<(), OnnxError> {
        let mut definitions: HashMap<&str, String> =
            graph.weights.keys().map(|name| (name.as_str(), "a weight".to_owned())).collect();
        definitions.extend(graph.inputs.iter().map(|input| (input.name.as_str(), "an input".to_owned())));
        for node in &graph.nodes {
            let by = format!("node `{}` ({})", node.name, node.op);
            for output in node.outputs.iter().filter(|name| !name.is_empty()) {
                if let Some(other) = definitions.insert(output, by.clone()) {
                    return Err(self.malformed(format!("the value `{output}` is defined by {other} and by {by}")));
                }
            }
        }
        Ok(())
    }

    /// Adds the outputs. Shapes that the file omits are inferred, and types that it declares are compared with the
    /// inferred ones.
    fn with_outputs(&self, mut graph: Graph, proto: &GraphProto) -> Result<Graph, OnnxError> {
        let inferred: HashMap<String, TensorSpec> = crate::infer_values(&graph).0.into_iter().collect();
        if proto.output.iter().any(|info| declared_spec(info).is_none()) {
            graph.values.extend(inferred.clone());
        }
        for info in &proto.output {
            let name = info.name.clone().unwrap_or_default();
            let unknown = || self.unsupported(format!("an output `{name}` of {}", unknown_part(info)));
            let spec = declared_spec(info).or_else(|| graph.values.get(&name).cloned()).ok_or_else(unknown)?;
            if let Some(inferred) = inferred.get(&name).filter(|inferred| inferred.dtype != spec.dtype) {
                let node = graph.nodes.iter().find(|node| node.outputs.contains(&name));
                let by = node.map_or_else(String::new, |node| format!(" by node `{}` ({})", node.name, node.op));
                return Err(self.malformed(format!(
                    "the output `{name}` is declared as `{}`, but computed as `{}`{by}",
                    spec.dtype, inferred.dtype
                )));
            }
            graph.outputs.push(ValueInfo { name: name.clone(), spec });
        }
        Ok(graph)
    }
}

#[cfg(test)]
mod tests {
    use super::super::proto::{AttributeProto, OperatorSetIdProto, TensorTypeProto, TypeProto};
    use super::*;
    use crate::{Attribute, InferError, write_onnx};

    fn tensor(name: &str, code: i32, dims: &[i64]) -> TensorProto {
        let (name, data_type) = (Some(name.to_owned()), Some(code));
        TensorProto { name, data_type, dims: dims.to_vec(), ..TensorProto::default() }
    }

    fn info(name: &str, spec: &str) -> ValueInfoProto {
        let spec: TensorSpec = spec.parse().unwrap();
        super::super::write::value_info(name, &spec)
    }

    fn node(op: &str, inputs: &[&str], output: &str) -> NodeProto {
        let input = inputs.iter().map(|&name| name.to_owned()).collect();
        NodeProto { op_type: Some(op.to_owned()), input, output: vec![output.to_owned()], ..NodeProto::default() }
    }

    /// Writes a model with this graph, and reads it.
    fn read(graph: GraphProto) -> (tempfile::TempDir, Result<Graph, OnnxError>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let set = OperatorSetIdProto { domain: None, version: Some(13) };
        let model =
            ModelProto { ir_version: Some(7), graph: Some(graph), opset_import: vec![set], ..Default::default() };
        std::fs::write(&path, model.encode_to_vec()).unwrap();
        let graph = read_onnx(&path);
        (folder, graph)
    }

    #[test]
    fn typed_fields_are_read_for_every_element_type() {
        let initializer = vec![
            TensorProto { float_data: vec![0.5, -2.0], ..tensor("f32", 1, &[2]) },
            TensorProto { int32_data: vec![255, 7], ..tensor("u8", 2, &[2]) },
            TensorProto { int32_data: vec![-1], ..tensor("i8", 3, &[1]) },
            TensorProto { int32_data: vec![-70_000], ..tensor("i32", 6, &[1]) },
            TensorProto { int64_data: vec![1 << 40], ..tensor("i64", 7, &[1]) },
            TensorProto { int32_data: vec![65_535], ..tensor("u16", 4, &[1]) },
            TensorProto { int32_data: vec![-300], ..tensor("i16", 5, &[1]) },
            TensorProto { uint64_data: vec![u64::from(u32::MAX)], ..tensor("u32", 12, &[1]) },
            TensorProto { uint64_data: vec![1 << 63], ..tensor("u64", 13, &[1]) },
            TensorProto { int32_data: vec![0, 1], ..tensor("bool", 9, &[2]) },
            TensorProto { int32_data: vec![0x3c00], ..tensor("f16", 10, &[1]) },
            TensorProto { double_data: vec![1e300], ..tensor("f64", 11, &[]) },
            TensorProto { int32_data: vec![0x3f80], ..tensor("bf16", 16, &[1]) },
        ];
        let (_folder, graph) = read(GraphProto { initializer, ..GraphProto::default() });
        let graph = graph.unwrap();
        let values = |name: &str| graph.tensor(name).unwrap().to_f64();
        assert_eq!((values("f32"), values("u8"), values("i8")), (vec![0.5, -2.0], vec![255.0, 7.0], vec![-1.0]));
        assert_eq!((values("i32"), values("i64")), (vec![-70_000.0], vec![(1u64 << 40) as f64]));
        assert_eq!((values("bool"), values("f16"), values("bf16")), (vec![0.0, 1.0], vec![1.0], vec![1.0]));
        assert_eq!((values("u16"), values("i16")), (vec![65_535.0], vec![-300.0]));
        assert_eq!((values("u32"), values("u64")), (vec![f64::from(u32::MAX)], vec![2f64.powi(63)]));
        assert_eq!(values("f64"), [1e300]);
        let roles = ["f32", "f64", "i64"].map(|name| graph.weights[name].role);
        assert_eq!(roles, [WeightRole::Parameter, WeightRole::Constant, WeightRole::Constant]);
    }

    #[test]
    fn too_few_elements_and_unknown_types_are_refused() {
        let few = TensorProto { float_data: vec![0.5], ..tensor("w", 1, &[2]) };
        let (_folder, graph) = read(GraphProto { initializer: vec![few], ..GraphProto::default() });
        let error = graph.unwrap_err().to_string();
        assert!(error.ends_with("weight `w`: a tensor `2,f32` needs 8 bytes, but 4 are available"), "{error}");
        let (_folder, graph) = read(GraphProto { initializer: vec![tensor("w", 14, &[2])], ..GraphProto::default() });
        let error = graph.unwrap_err().to_string();
        assert!(error.ends_with("has a weight `w` of the element type `complex64`, which is not supported"), "{error}");
    }

    #[test]
    fn unknown_operators_and_the_declared_specs_of_their_outputs_are_kept() {
        let mut custom = node("Custom", &["x"], "a");
        custom.domain = Some("com.example".to_owned());
        let mut branch = node("If", &["c"], "b");
        let then = AttributeProto {
            name: Some("then_branch".to_owned()),
            kind: Some(5),
            g: Some(vec![0x12, 1, b'g']),
            ..AttributeProto::default()
        };
        branch.attribute.push(then);
        let graph = GraphProto {
            node: vec![custom, branch, node("Relu", &["a"], "r"), node("Add", &["r", "b"], "y")],
            // In old files, the inputs include the weights.
            initializer: vec![TensorProto { int32_data: vec![1], ..tensor("c", 9, &[]) }],
            input: vec![info("x", "N,4,f32"), info("c", "bool")],
            output: vec![info("y", "N,4,f32")],
            value_info: vec![info("a", "N,4,f32")],
            ..GraphProto::default()
        };
        let (folder, graph) = read(graph);
        let mut graph = graph.unwrap();
        assert_eq!((graph.opset, graph.inputs.len(), graph.nodes.len()), (13, 1, 4));
        let reasons: Vec<InferError> = crate::infer_shapes(&mut graph).into_iter().map(|node| node.reason).collect();
        let unknown = |name: &str| InferError::UnknownOperator(name.to_owned());
        assert_eq!(reasons, [unknown("com.example.Custom"), unknown("If")]);
        assert_eq!(graph.values["r"].to_string(), "N,4,f32");
        crate::check(&graph).unwrap();
        assert_eq!(crate::count(&graph).multiply_adds_per_sample, None);

        let again = folder.path().join("again.onnx");
        write_onnx(&graph, &again).unwrap();
        let back = read_onnx(&again).unwrap();
        assert!(matches!(&back.nodes[1].attributes["then_branch"], Attribute::Encoded(bytes) if !bytes.is_empty()));
        assert_eq!(back.nodes, graph.nodes);
    }

    #[test]
    fn the_shape_of_an_output_is_inferred_if_the_file_omits_it() {
        let bare = TensorTypeProto { elem_type: Some(1), shape: None };
        let output = ValueInfoProto { name: Some("y".to_owned()), r#type: Some(TypeProto { tensor_type: Some(bare) }) };
        let graph = GraphProto {
            node: vec![node("Relu", &["x"], "y")],
            input: vec![info("x", "N,4,f32")],
            output: vec![output.clone()],
            ..GraphProto::default()
        };
        let (_folder, graph) = read(graph);
        assert_eq!(graph.unwrap().outputs[0].spec.to_string(), "N,4,f32");
        let graph = GraphProto {
            node: vec![node("Strange", &["x"], "y")],
            input: vec![info("x", "N,4,f32")],
            output: vec![output],
            ..GraphProto::default()
        };
        let (_folder, graph) = read(graph);
        assert!(graph.unwrap_err().to_string().contains("an output `y` of unknown shape"));
    }

    #[test]
    fn a_value_with_two_definitions_is_refused() {
        let named = |name: &str, op: &str| NodeProto { name: Some(name.to_owned()), ..node(op, &["x"], "y") };
        let graph = |nodes: Vec<NodeProto>| GraphProto {
            node: nodes,
            input: vec![info("x", "4,f32")],
            output: vec![info("y", "4,f32")],
            ..GraphProto::default()
        };
        let error = |nodes| read(graph(nodes)).1.unwrap_err().to_string();
        let text = error(vec![named("a", "Relu"), named("b", "Neg")]);
        assert!(text.ends_with("the value `y` is defined by node `a` (Relu) and by node `b` (Neg)"), "{text}");
        let text = error(vec![NodeProto { output: vec!["x".to_owned()], ..named("a", "Relu") }]);
        assert!(text.ends_with("the value `x` is defined by an input and by node `a` (Relu)"), "{text}");
    }

    #[test]
    fn an_output_that_is_declared_in_another_type_than_computed_is_refused() {
        let graph = GraphProto {
            node: vec![NodeProto { name: Some("half".to_owned()), ..node("Relu", &["x"], "y") }],
            input: vec![info("x", "4,f32")],
            output: vec![info("y", "4,i64")],
            ..GraphProto::default()
        };
        let text = read(graph).1.unwrap_err().to_string();
        let expected = "the output `y` is declared as `i64`, but computed as `f32` by node `half` (Relu)";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn a_data_file_outside_the_folder_is_refused() {
        for location in ["../w.bin", "/etc/passwd"] {
            let entry = StringStringEntryProto { key: Some("location".to_owned()), value: Some(location.to_owned()) };
            let external =
                TensorProto { data_location: Some(EXTERNAL), external_data: vec![entry], ..tensor("w", 1, &[1]) };
            let (_folder, graph) = read(GraphProto { initializer: vec![external], ..GraphProto::default() });
            assert!(graph.unwrap_err().to_string().contains("is outside the folder of the ONNX file"));
        }
    }
}
