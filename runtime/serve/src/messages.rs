//! The messages of gRPC, generated from proto/inference.proto by tests/messages.rs.

/// Asks whether the server runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerLiveRequest {}
/// Whether the server runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerLiveResponse {
    #[prost(bool, tag = "1")]
    pub live: bool,
}
/// Asks whether every model can answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerReadyRequest {}
/// Whether every model can answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerReadyResponse {
    #[prost(bool, tag = "1")]
    pub ready: bool,
}
/// Asks whether a model can answer.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelReadyRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
}
/// Whether a model can answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelReadyResponse {
    #[prost(bool, tag = "1")]
    pub ready: bool,
}
/// Asks for the server's name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerMetadataRequest {}
/// The server's name, its version, and the extensions that it has.
#[derive(::serde::Serialize)]
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerMetadataResponse {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
    #[prost(string, repeated, tag = "3")]
    pub extensions: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
}
/// Asks for the inputs and outputs of a model.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelMetadataRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
}
/// The inputs and outputs of a model.
#[derive(::serde::Serialize)]
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelMetadataResponse {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, repeated, tag = "2")]
    pub versions: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(string, tag = "3")]
    pub platform: ::prost::alloc::string::String,
    #[prost(message, repeated, tag = "4")]
    pub inputs: ::prost::alloc::vec::Vec<model_metadata_response::TensorMetadata>,
    #[prost(message, repeated, tag = "5")]
    pub outputs: ::prost::alloc::vec::Vec<model_metadata_response::TensorMetadata>,
}
/// Nested message and enum types in `ModelMetadataResponse`.
pub mod model_metadata_response {
    /// An input or output; -1 in its shape is any size.
    #[derive(::serde::Serialize)]
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct TensorMetadata {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        pub datatype: ::prost::alloc::string::String,
        #[prost(int64, repeated, tag = "3")]
        pub shape: ::prost::alloc::vec::Vec<i64>,
    }
}
/// A value of a parameter.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct InferParameter {
    #[prost(oneof = "infer_parameter::ParameterChoice", tags = "1, 2, 3, 4, 5")]
    pub parameter_choice: ::core::option::Option<infer_parameter::ParameterChoice>,
}
/// Nested message and enum types in `InferParameter`.
pub mod infer_parameter {
    #[derive(Clone, PartialEq, ::prost::Oneof)]
    pub enum ParameterChoice {
        #[prost(bool, tag = "1")]
        BoolParam(bool),
        #[prost(int64, tag = "2")]
        Int64Param(i64),
        #[prost(string, tag = "3")]
        StringParam(::prost::alloc::string::String),
        #[prost(double, tag = "4")]
        DoubleParam(f64),
        #[prost(uint64, tag = "5")]
        Uint64Param(u64),
    }
}
/// The elements of a tensor in the field of their type. INT8 and INT16 are in `int_contents`, UINT8 and UINT16 in
/// `uint_contents`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct InferTensorContents {
    #[prost(bool, repeated, tag = "1")]
    pub bool_contents: ::prost::alloc::vec::Vec<bool>,
    #[prost(int32, repeated, tag = "2")]
    pub int_contents: ::prost::alloc::vec::Vec<i32>,
    #[prost(int64, repeated, tag = "3")]
    pub int64_contents: ::prost::alloc::vec::Vec<i64>,
    #[prost(uint32, repeated, tag = "4")]
    pub uint_contents: ::prost::alloc::vec::Vec<u32>,
    #[prost(uint64, repeated, tag = "5")]
    pub uint64_contents: ::prost::alloc::vec::Vec<u64>,
    #[prost(float, repeated, tag = "6")]
    pub fp32_contents: ::prost::alloc::vec::Vec<f32>,
    #[prost(double, repeated, tag = "7")]
    pub fp64_contents: ::prost::alloc::vec::Vec<f64>,
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub bytes_contents: ::prost::alloc::vec::Vec<::prost::bytes::Bytes>,
}
/// A request for inference.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelInferRequest {
    #[prost(string, tag = "1")]
    pub model_name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub model_version: ::prost::alloc::string::String,
    #[prost(string, tag = "3")]
    pub id: ::prost::alloc::string::String,
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        InferParameter,
    >,
    #[prost(message, repeated, tag = "5")]
    pub inputs: ::prost::alloc::vec::Vec<model_infer_request::InferInputTensor>,
    #[prost(message, repeated, tag = "6")]
    pub outputs: ::prost::alloc::vec::Vec<
        model_infer_request::InferRequestedOutputTensor,
    >,
    /// The bytes of each input in order, instead of `contents`.
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub raw_input_contents: ::prost::alloc::vec::Vec<::prost::bytes::Bytes>,
}
/// Nested message and enum types in `ModelInferRequest`.
pub mod model_infer_request {
    /// An input.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct InferInputTensor {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        pub datatype: ::prost::alloc::string::String,
        #[prost(int64, repeated, tag = "3")]
        pub shape: ::prost::alloc::vec::Vec<i64>,
        #[prost(btree_map = "string, message", tag = "4")]
        pub parameters: ::prost::alloc::collections::BTreeMap<
            ::prost::alloc::string::String,
            super::InferParameter,
        >,
        #[prost(message, optional, tag = "5")]
        pub contents: ::core::option::Option<super::InferTensorContents>,
    }
    /// An output that the client wants.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct InferRequestedOutputTensor {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(btree_map = "string, message", tag = "2")]
        pub parameters: ::prost::alloc::collections::BTreeMap<
            ::prost::alloc::string::String,
            super::InferParameter,
        >,
    }
}
/// The answer to a request for inference.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelInferResponse {
    #[prost(string, tag = "1")]
    pub model_name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub model_version: ::prost::alloc::string::String,
    #[prost(string, tag = "3")]
    pub id: ::prost::alloc::string::String,
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        InferParameter,
    >,
    #[prost(message, repeated, tag = "5")]
    pub outputs: ::prost::alloc::vec::Vec<model_infer_response::InferOutputTensor>,
    /// The bytes of each output in order.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub raw_output_contents: ::prost::alloc::vec::Vec<::prost::bytes::Bytes>,
}
/// Nested message and enum types in `ModelInferResponse`.
pub mod model_infer_response {
    /// An output.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct InferOutputTensor {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        pub datatype: ::prost::alloc::string::String,
        #[prost(int64, repeated, tag = "3")]
        pub shape: ::prost::alloc::vec::Vec<i64>,
        #[prost(btree_map = "string, message", tag = "4")]
        pub parameters: ::prost::alloc::collections::BTreeMap<
            ::prost::alloc::string::String,
            super::InferParameter,
        >,
    }
}
/// The answer to a request of a stream: an error or outputs.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelStreamInferResponse {
    #[prost(string, tag = "1")]
    pub error_message: ::prost::alloc::string::String,
    #[prost(message, optional, tag = "2")]
    pub infer_response: ::core::option::Option<ModelInferResponse>,
}
/// Asks for the configuration of a model.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelConfigRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
}
/// The configuration of a model.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelConfigResponse {
    #[prost(message, optional, tag = "1")]
    pub config: ::core::option::Option<ModelConfig>,
}
/// The processes that run a model.
#[derive(::serde::Serialize)]
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelInstanceGroup {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(int32, tag = "2")]
    pub count: i32,
    #[prost(enumeration = "model_instance_group::Kind", tag = "4")]
    #[serde(serialize_with = "crate::datatype::kind_name")]
    pub kind: i32,
}
/// Nested message and enum types in `ModelInstanceGroup`.
pub mod model_instance_group {
    /// The kind of device.
    #[derive(::serde::Serialize)]
    #[derive(
        Clone,
        Copy,
        Debug,
        PartialEq,
        Eq,
        Hash,
        PartialOrd,
        Ord,
        ::prost::Enumeration
    )]
    #[repr(i32)]
    pub enum Kind {
        Auto = 0,
        Gpu = 1,
        Cpu = 2,
        Model = 3,
    }
    impl Kind {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::Auto => "KIND_AUTO",
                Self::Gpu => "KIND_GPU",
                Self::Cpu => "KIND_CPU",
                Self::Model => "KIND_MODEL",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "KIND_AUTO" => Some(Self::Auto),
                "KIND_GPU" => Some(Self::Gpu),
                "KIND_CPU" => Some(Self::Cpu),
                "KIND_MODEL" => Some(Self::Model),
                _ => None,
            }
        }
    }
}
/// An input; without the dimension of rows, if requests are joined.
#[derive(::serde::Serialize)]
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelInput {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(enumeration = "DataType", tag = "2")]
    #[serde(serialize_with = "crate::datatype::config_type_name")]
    pub data_type: i32,
    #[prost(int64, repeated, tag = "4")]
    pub dims: ::prost::alloc::vec::Vec<i64>,
}
/// An output; without the dimension of rows, if requests are joined.
#[derive(::serde::Serialize)]
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelOutput {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(enumeration = "DataType", tag = "2")]
    #[serde(serialize_with = "crate::datatype::config_type_name")]
    pub data_type: i32,
    #[prost(int64, repeated, tag = "3")]
    pub dims: ::prost::alloc::vec::Vec<i64>,
    #[prost(string, tag = "4")]
    pub label_filename: ::prost::alloc::string::String,
}
/// How requests are joined.
#[derive(::serde::Serialize)]
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelDynamicBatching {
    #[prost(int32, repeated, tag = "1")]
    pub preferred_batch_size: ::prost::alloc::vec::Vec<i32>,
    #[prost(uint64, tag = "2")]
    pub max_queue_delay_microseconds: u64,
}
/// How a model is served.
#[derive(::serde::Serialize)]
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelConfig {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub platform: ::prost::alloc::string::String,
    #[prost(int32, tag = "4")]
    pub max_batch_size: i32,
    #[prost(message, repeated, tag = "5")]
    pub input: ::prost::alloc::vec::Vec<ModelInput>,
    #[prost(message, repeated, tag = "6")]
    pub output: ::prost::alloc::vec::Vec<ModelOutput>,
    #[prost(message, repeated, tag = "7")]
    pub instance_group: ::prost::alloc::vec::Vec<ModelInstanceGroup>,
    #[prost(string, tag = "8")]
    pub default_model_filename: ::prost::alloc::string::String,
    #[prost(message, optional, tag = "11")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamic_batching: ::core::option::Option<ModelDynamicBatching>,
    #[prost(string, tag = "17")]
    pub backend: ::prost::alloc::string::String,
}
/// Asks what models have served; all of them, if none is named.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelStatisticsRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
}
/// A number of events, and the sum of their times in nanoseconds.
#[derive(::serde::Serialize)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct StatisticDuration {
    #[prost(uint64, tag = "1")]
    pub count: u64,
    #[prost(uint64, tag = "2")]
    pub ns: u64,
}
/// The requests of a model.
#[derive(::serde::Serialize)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct InferStatistics {
    #[prost(message, optional, tag = "1")]
    pub success: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "2")]
    pub fail: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "3")]
    pub queue: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "4")]
    pub compute_input: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "5")]
    pub compute_infer: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "6")]
    pub compute_output: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "7")]
    pub cache_hit: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "8")]
    pub cache_miss: ::core::option::Option<StatisticDuration>,
}
/// The runs of one number of rows.
#[derive(::serde::Serialize)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct InferBatchStatistics {
    #[prost(uint64, tag = "1")]
    pub batch_size: u64,
    #[prost(message, optional, tag = "2")]
    pub compute_input: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "3")]
    pub compute_infer: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "4")]
    pub compute_output: ::core::option::Option<StatisticDuration>,
}
/// What a version of a model has served.
#[derive(::serde::Serialize)]
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelStatistics {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
    #[prost(uint64, tag = "3")]
    pub last_inference: u64,
    #[prost(uint64, tag = "4")]
    pub inference_count: u64,
    #[prost(uint64, tag = "5")]
    pub execution_count: u64,
    #[prost(message, optional, tag = "6")]
    pub inference_stats: ::core::option::Option<InferStatistics>,
    #[prost(message, repeated, tag = "7")]
    pub batch_stats: ::prost::alloc::vec::Vec<InferBatchStatistics>,
}
/// What models have served.
#[derive(::serde::Serialize)]
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelStatisticsResponse {
    #[prost(message, repeated, tag = "1")]
    pub model_stats: ::prost::alloc::vec::Vec<ModelStatistics>,
}
/// Asks for the models of the store.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RepositoryIndexRequest {
    #[prost(string, tag = "1")]
    pub repository_name: ::prost::alloc::string::String,
    #[prost(bool, tag = "2")]
    pub ready: bool,
}
/// The models of the store.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct RepositoryIndexResponse {
    #[prost(message, repeated, tag = "1")]
    pub models: ::prost::alloc::vec::Vec<repository_index_response::ModelIndex>,
}
/// Nested message and enum types in `RepositoryIndexResponse`.
pub mod repository_index_response {
    /// A version of a model.
    #[derive(::serde::Serialize)]
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct ModelIndex {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        #[serde(skip_serializing_if = "String::is_empty")]
        pub version: ::prost::alloc::string::String,
        #[prost(string, tag = "3")]
        pub state: ::prost::alloc::string::String,
        #[prost(string, tag = "4")]
        pub reason: ::prost::alloc::string::String,
    }
}
/// Loads a model of the store.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RepositoryModelLoadRequest {
    #[prost(string, tag = "1")]
    pub repository_name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub model_name: ::prost::alloc::string::String,
}
/// The model is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RepositoryModelLoadResponse {}
/// Unloads a model.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RepositoryModelUnloadRequest {
    #[prost(string, tag = "1")]
    pub repository_name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub model_name: ::prost::alloc::string::String,
}
/// The model is unloaded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RepositoryModelUnloadResponse {}
/// Asks for a registered region; all of them, if none is named.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SystemSharedMemoryStatusRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
}
/// Registered regions.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct SystemSharedMemoryStatusResponse {
    #[prost(btree_map = "string, message", tag = "1")]
    pub regions: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        system_shared_memory_status_response::RegionStatus,
    >,
}
/// Nested message and enum types in `SystemSharedMemoryStatusResponse`.
pub mod system_shared_memory_status_response {
    /// A region.
    #[derive(::serde::Serialize)]
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct RegionStatus {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        pub key: ::prost::alloc::string::String,
        #[prost(uint64, tag = "3")]
        pub offset: u64,
        #[prost(uint64, tag = "4")]
        pub byte_size: u64,
    }
}
/// Registers a region of shared memory under a name.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SystemSharedMemoryRegisterRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub key: ::prost::alloc::string::String,
    #[prost(uint64, tag = "3")]
    pub offset: u64,
    #[prost(uint64, tag = "4")]
    pub byte_size: u64,
}
/// The region is registered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SystemSharedMemoryRegisterResponse {}
/// Forgets a region; all of them, if none is named.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SystemSharedMemoryUnregisterRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
}
/// The region is forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SystemSharedMemoryUnregisterResponse {}
/// The type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum DataType {
    TypeInvalid = 0,
    TypeBool = 1,
    TypeUint8 = 2,
    TypeUint16 = 3,
    TypeUint32 = 4,
    TypeUint64 = 5,
    TypeInt8 = 6,
    TypeInt16 = 7,
    TypeInt32 = 8,
    TypeInt64 = 9,
    TypeFp16 = 10,
    TypeFp32 = 11,
    TypeFp64 = 12,
    TypeString = 13,
    TypeBf16 = 14,
}
impl DataType {
    /// String value of the enum field names used in the ProtoBuf definition.
    ///
    /// The values are not transformed in any way and thus are considered stable
    /// (if the ProtoBuf definition does not change) and safe for programmatic use.
    pub fn as_str_name(&self) -> &'static str {
        match self {
            Self::TypeInvalid => "TYPE_INVALID",
            Self::TypeBool => "TYPE_BOOL",
            Self::TypeUint8 => "TYPE_UINT8",
            Self::TypeUint16 => "TYPE_UINT16",
            Self::TypeUint32 => "TYPE_UINT32",
            Self::TypeUint64 => "TYPE_UINT64",
            Self::TypeInt8 => "TYPE_INT8",
            Self::TypeInt16 => "TYPE_INT16",
            Self::TypeInt32 => "TYPE_INT32",
            Self::TypeInt64 => "TYPE_INT64",
            Self::TypeFp16 => "TYPE_FP16",
            Self::TypeFp32 => "TYPE_FP32",
            Self::TypeFp64 => "TYPE_FP64",
            Self::TypeString => "TYPE_STRING",
            Self::TypeBf16 => "TYPE_BF16",
        }
    }
    /// Creates an enum from field names used in the ProtoBuf definition.
    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
        match value {
            "TYPE_INVALID" => Some(Self::TypeInvalid),
            "TYPE_BOOL" => Some(Self::TypeBool),
            "TYPE_UINT8" => Some(Self::TypeUint8),
            "TYPE_UINT16" => Some(Self::TypeUint16),
            "TYPE_UINT32" => Some(Self::TypeUint32),
            "TYPE_UINT64" => Some(Self::TypeUint64),
            "TYPE_INT8" => Some(Self::TypeInt8),
            "TYPE_INT16" => Some(Self::TypeInt16),
            "TYPE_INT32" => Some(Self::TypeInt32),
            "TYPE_INT64" => Some(Self::TypeInt64),
            "TYPE_FP16" => Some(Self::TypeFp16),
            "TYPE_FP32" => Some(Self::TypeFp32),
            "TYPE_FP64" => Some(Self::TypeFp64),
            "TYPE_STRING" => Some(Self::TypeString),
            "TYPE_BF16" => Some(Self::TypeBf16),
            _ => None,
        }
    }
}
