//! The names of element types in the protocol.

use flagperf_core::tensor::DType;

use serde::Serializer;

use super::messages::DataType;
use super::messages::model_instance_group::Kind;

/// Each type with its name in the protocol, and in the configuration of a model.
const NAMES: [(DType, &str, DataType); 13] = [
    (DType::F64, "FP64", DataType::TypeFp64),
    (DType::F32, "FP32", DataType::TypeFp32),
    (DType::F16, "FP16", DataType::TypeFp16),
    (DType::BF16, "BF16", DataType::TypeBf16),
    (DType::I64, "INT64", DataType::TypeInt64),
    (DType::I32, "INT32", DataType::TypeInt32),
    (DType::I16, "INT16", DataType::TypeInt16),
    (DType::I8, "INT8", DataType::TypeInt8),
    (DType::U64, "UINT64", DataType::TypeUint64),
    (DType::U32, "UINT32", DataType::TypeUint32),
    (DType::U16, "UINT16", DataType::TypeUint16),
    (DType::U8, "UINT8", DataType::TypeUint8),
    (DType::Bool, "BOOL", DataType::TypeBool),
];

/// Returns the name of a type in the protocol: `FP32`.
pub fn protocol_name(dtype: DType) -> &'static str {
    NAMES.iter().find(|(known, ..)| *known == dtype).map_or("", |(_, name, _)| name)
}

/// Returns the type with a name in the protocol.
pub fn named_dtype(name: &str) -> Option<DType> {
    NAMES.iter().find(|(_, known, _)| *known == name).map(|(dtype, ..)| *dtype)
}

/// Returns a type as the configuration of a model states it.
pub fn config_type(dtype: DType) -> DataType {
    NAMES.iter().find(|(known, ..)| *known == dtype).map_or(DataType::TypeInvalid, |(.., kind)| *kind)
}

/// Writes a type in JSON as the configuration of a model names it: `TYPE_FP32`.
///
/// # Errors
/// When the serializer fails.
pub fn config_type_name<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(DataType::try_from(*number).unwrap_or_default().as_str_name())
}

/// Writes a kind of device in JSON: `KIND_AUTO`.
///
/// # Errors
/// When the serializer fails.
pub fn kind_name<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(Kind::try_from(*number).unwrap_or_default().as_str_name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_names_of_its_own() {
        let names: std::collections::BTreeSet<&str> = DType::ALL.into_iter().map(protocol_name).collect();
        assert_eq!(names.len(), DType::ALL.len());
        assert!(!names.contains(""));
        for dtype in DType::ALL {
            assert_eq!(config_type(dtype).as_str_name(), format!("TYPE_{}", protocol_name(dtype)));
            assert_eq!(named_dtype(protocol_name(dtype)), Some(dtype));
        }
    }
}
