//! The names of element types in the protocol.

use flagperf_core::tensor::DType;

/// Each type with its name in the protocol.
const NAMES: [(DType, &str); 13] = [
    (DType::F64, "FP64"),
    (DType::F32, "FP32"),
    (DType::F16, "FP16"),
    (DType::BF16, "BF16"),
    (DType::I64, "INT64"),
    (DType::I32, "INT32"),
    (DType::I16, "INT16"),
    (DType::I8, "INT8"),
    (DType::U64, "UINT64"),
    (DType::U32, "UINT32"),
    (DType::U16, "UINT16"),
    (DType::U8, "UINT8"),
    (DType::Bool, "BOOL"),
];

/// Returns the name of a type in the protocol: `FP32`.
pub fn protocol_name(dtype: DType) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == dtype).map_or("", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<&str> = DType::ALL.into_iter().map(protocol_name).collect();
        assert_eq!(names.len(), DType::ALL.len());
        assert!(!names.contains(""));
    }
}
