//! The graph: ONNX nodes over named values, with weights as specifications rather than bytes.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use crate::{DType, Tensor, TensorSpec};

/// A model: one graph, or several that a forward function drives (text encoder, denoiser, decoder).
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The graphs by name; a model of one graph calls it `model`.
    pub graphs: IndexMap<String, Graph>,
}

impl Model {
    /// The name of the graph in a model that has just one.
    pub const SINGLE: &'static str = "model";

    /// A model of one graph.
    pub fn single(graph: Graph) -> Self {
        Model { graphs: IndexMap::from([(Self::SINGLE.to_owned(), graph)]) }
    }
}

/// One ONNX graph of standard operators, every value typed.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Name written to the file.
    pub name: String,
    /// Version of the standard operator set.
    pub opset: i64,
    /// What a caller feeds, in order.
    pub inputs: Vec<ValueInfo>,
    /// What a caller gets, in order.
    pub outputs: Vec<ValueInfo>,
    /// Operators in topological order.
    pub nodes: Vec<Node>,
    /// Weights by name, in the order they were declared.
    pub weights: IndexMap<String, Weight>,
    /// Inferred shape and type of every value that a node makes, by name.
    pub values: IndexMap<String, TensorSpec>,
    /// Versions of the operator sets of other domains, by domain.
    pub domains: IndexMap<String, i64>,
    /// Local functions of a file that was read, in their encoded form: carried, never interpreted.
    pub functions: Vec<Vec<u8>>,
    /// Whether the file that was read says of itself that its weights are random: see [`Graph::weights_are_random`].
    pub noted_random: bool,
}

/// A named input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueInfo {
    /// Name in the graph.
    pub name: String,
    /// Shape and element type.
    pub spec: TensorSpec,
}

/// One operator application.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// The layer's name, unique in the graph (`layer1.0.conv1`).
    pub name: String,
    /// Operator, by its ONNX name (`Conv`).
    pub op: String,
    /// Operator domain; empty is the standard one.
    pub domain: String,
    /// Values read; an empty name is an optional input left out.
    pub inputs: Vec<String>,
    /// Values made.
    pub outputs: Vec<String>,
    /// Attributes by name.
    pub attributes: IndexMap<String, Attribute>,
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
    /// A kind that is carried and never interpreted (a subgraph, a sparse tensor): the whole encoded attribute.
    Encoded(Vec<u8>),
}

/// A weight: what it is and where its bytes come from. The bytes exist only while a session loads or a file is written.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Shape and type; every dimension is fixed.
    pub spec: TensorSpec,
    /// What the weight is to training.
    pub role: Role,
    /// Where the bytes come from.
    pub source: Source,
}

/// What a weight is to training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Learned (`weight`, `bias`).
    Parameter,
    /// Kept by the layer, not learned (`running_mean`).
    Buffer,
    /// Part of the graph itself (a shape, an axis).
    Constant,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 3] = [Role::Parameter, Role::Buffer, Role::Constant];

    /// The role in one word.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Parameter => "parameter",
            Role::Buffer => "buffer",
            Role::Constant => "constant",
        }
    }
}

/// Where a weight's bytes come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A tensor in a safetensors file.
    File {
        /// The file.
        path: PathBuf,
        /// The tensor's name in it.
        key: String,
    },
    /// Random values, the same for the same seed and name everywhere.
    Seed {
        /// The model's seed.
        seed: u64,
        /// How the values are spread.
        init: Init,
    },
    /// The values themselves.
    Value(Tensor),
    /// Little-endian bytes within an ONNX file or one of its external data files.
    External {
        /// The data file.
        path: PathBuf,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// The type of the elements there.
        dtype: DType,
    },
}

impl Source {
    /// The file that the bytes lie in, if any.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Source::File { path, .. } | Source::External { path, .. } => Some(path),
            Source::Seed { .. } | Source::Value(_) => None,
        }
    }
}

/// How random values are spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Uniform in ±`bound`.
    Uniform {
        /// Largest absolute value.
        bound: f32,
    },
    /// Normal around zero.
    Normal {
        /// Standard deviation.
        std: f32,
    },
    /// The same value everywhere.
    Constant(f32),
}
