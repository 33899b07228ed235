//! The graph: ONNX nodes over named values. Weights are specifications, not bytes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use crate::rewrite::VendorOperator;
use crate::{DType, Int8Part, Tensor, TensorSpec};

/// A model: one graph, or several that a forward function drives (text encoder, denoiser, decoder).
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The graphs by name. In a model of one graph, its name is `model`.
    pub graphs: IndexMap<String, Graph>,
}

impl Model {
    /// The name of the graph in a model of one graph.
    pub const SINGLE: &'static str = "model";

    /// Returns a model of one graph.
    pub fn single(graph: Graph) -> Self {
        Model { graphs: IndexMap::from([(Self::SINGLE.to_owned(), graph)]) }
    }
}

/// One ONNX graph of standard operators, in which every value has a type.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The name written to the file.
    pub name: String,
    /// Version of the standard operator set.
    pub opset: i64,
    /// The inputs, in order.
    pub inputs: Vec<ValueInfo>,
    /// The outputs, in order.
    pub outputs: Vec<ValueInfo>,
    /// The nodes in topological order.
    pub nodes: Vec<Node>,
    /// The weights by name, in the order in which they were declared.
    pub weights: IndexMap<String, Weight>,
    /// The inferred shape and type of every node output, by name.
    pub values: IndexMap<String, TensorSpec>,
    /// Versions of the operator sets of non-standard domains, by domain.
    pub domains: IndexMap<String, i64>,
    /// What the vendor's operators compute that scripts have put into the graph. Files do not contain it.
    pub operators: Vec<VendorOperator>,
    /// The functions of a file, in their encoded form, if calls of them are left: those written for another version of the
    /// standard operator set.
    pub functions: Vec<Vec<u8>>,
    /// Whether the metadata of the file declares its weights random: see [`Graph::weights_are_random`].
    pub declares_random_weights: bool,
}

impl Graph {
    /// Returns the specifications of the values, as far as they are known.
    pub fn specs(&self) -> HashMap<String, TensorSpec> {
        let declared = self.inputs.iter().map(|input| (input.name.clone(), input.spec.clone()));
        let weights = self.weights.iter().map(|(name, weight)| (name.clone(), weight.spec.clone()));
        let stored = self.values.iter().map(|(name, spec)| (name.clone(), spec.clone()));
        stored.chain(weights).chain(declared).collect()
    }
}

/// A named input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueInfo {
    /// The name in the graph.
    pub name: String,
    /// Shape and element type.
    pub spec: TensorSpec,
}

/// One operator application.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// The layer's name, unique in the graph (`layer1.0.conv1`).
    pub name: String,
    /// The ONNX name of the operator (`Conv`).
    pub op: String,
    /// The operator's domain; empty for the standard domain.
    pub domain: String,
    /// The names of the inputs; an empty name stands for an omitted optional input.
    pub inputs: Vec<String>,
    /// The names of the outputs.
    pub outputs: Vec<String>,
    /// The attributes by name.
    pub attributes: IndexMap<String, Attribute>,
}

impl Node {
    /// Returns the tensor that a `Constant` contains in its only attribute; `None` if it contains strings or a sparse
    /// tensor.
    pub fn constant(&self) -> Option<Tensor> {
        let vector = "the shape is taken from the length of the vector";
        match self.attributes.first()? {
            (name, Attribute::Tensor(tensor)) if name == "value" => Some(tensor.clone()),
            (_, Attribute::Float(number)) => Some(Tensor::scalar(*number)),
            (_, Attribute::Int(number)) => Some(Tensor::scalar(*number)),
            (_, Attribute::Floats(numbers)) => Some(Tensor::from_vec([numbers.len()], numbers.clone()).expect(vector)),
            (_, Attribute::Ints(numbers)) => Some(Tensor::from_vec([numbers.len()], numbers.clone()).expect(vector)),
            _ => None,
        }
    }
}

/// The value of a node's attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// One integer.
    Int(i64),
    /// One number.
    Float(f32),
    /// One string.
    String(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Numbers.
    Floats(Vec<f32>),
    /// Strings.
    Strings(Vec<String>),
    /// A tensor.
    Tensor(Tensor),
    /// The whole encoded attribute, of a kind that is kept but never interpreted (a subgraph, a sparse tensor).
    Encoded(Vec<u8>),
}

/// A weight's specification and the source of its bytes. The bytes exist only while a session loads or a file is
/// written.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Shape and type. Every dimension is fixed.
    pub spec: TensorSpec,
    /// The weight's role in training.
    pub role: WeightRole,
    /// Where the bytes come from.
    pub source: WeightSource,
}

impl Weight {
    /// Returns a constant of the graph itself.
    pub fn constant(tensor: Tensor) -> Self {
        Weight { spec: tensor.spec(), role: WeightRole::Constant, source: WeightSource::Value(tensor) }
    }

    /// Returns the values, if the graph itself contains them.
    pub fn tensor(&self) -> Option<&Tensor> {
        match &self.source {
            WeightSource::Value(tensor) => Some(tensor),
            _ => None,
        }
    }
}

/// A weight's role in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightRole {
    /// Learned (`weight`, `bias`).
    Parameter,
    /// Kept by the layer, not learned (`running_mean`).
    Buffer,
    /// Part of the graph itself (a shape, an axis).
    Constant,
}

impl WeightRole {
    /// Every role.
    pub const ALL: [WeightRole; 3] = [WeightRole::Parameter, WeightRole::Buffer, WeightRole::Constant];

    /// Returns the role in one word.
    pub const fn name(self) -> &'static str {
        match self {
            WeightRole::Parameter => "parameter",
            WeightRole::Buffer => "buffer",
            WeightRole::Constant => "constant",
        }
    }
}

/// Where a weight's bytes come from.
#[derive(Clone, Debug)]
pub enum WeightSource {
    /// A tensor in a file of weights.
    File {
        /// The file.
        path: PathBuf,
        /// The tensor's name in it.
        key: String,
    },
    /// Random values that depend only on the seed and the weight's name, on every machine.
    Seed {
        /// The model's seed.
        seed: u64,
        /// The distribution of the values.
        init: Init,
    },
    /// The values themselves.
    Value(Tensor),
    /// Little-endian bytes within an ONNX file or one of its external data files.
    External {
        /// The file.
        path: PathBuf,
        /// Position of the first byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// The element type in the file.
        dtype: DType,
    },
    /// A part of a weight in int8, computed from its values: see [`Graph::store_as_int8`].
    Int8 {
        /// The name of the weight.
        name: String,
        /// The weight in f32.
        of: Box<Weight>,
        /// Which part.
        part: Int8Part,
    },
}

impl WeightSource {
    /// Returns the file that contains the bytes, if any.
    pub fn path(&self) -> Option<&Path> {
        match self {
            WeightSource::File { path, .. } | WeightSource::External { path, .. } => Some(path),
            WeightSource::Int8 { of, .. } => of.source.path(),
            WeightSource::Seed { .. } | WeightSource::Value(_) => None,
        }
    }

    /// Returns the source of the values from which a part of a weight in int8 is computed, or this source.
    pub(crate) fn original(&self) -> &WeightSource {
        match self {
            WeightSource::Int8 { of, .. } => of.source.original(),
            own => own,
        }
    }
}

/// The distribution of a weight's initial values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Uniform in ±`bound`.
    Uniform {
        /// Largest absolute value.
        bound: f32,
    },
    /// Normal with mean zero.
    Normal {
        /// Standard deviation.
        std: f32,
    },
    /// The same value everywhere.
    Constant(f32),
}
