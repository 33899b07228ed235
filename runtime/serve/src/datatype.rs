//! The names of types and devices in messages.

use flagperf_core::tensor::DType;

use serde::Serializer;

use super::messages::DataType;
use super::messages::model_instance_group::Kind;

/// Returns a type as the configuration of a model states it.
pub fn config_type(dtype: DType) -> DataType {
    DataType::from_str_name(&format!("TYPE_{}", dtype.kserve_name())).unwrap_or(DataType::TypeInvalid)
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
        let types: std::collections::BTreeSet<i32> = DType::ALL.map(|dtype| config_type(dtype) as i32).into();
        assert!(types.len() == DType::ALL.len() && !types.contains(&(DataType::TypeInvalid as i32)));
        for dtype in DType::ALL {
            assert_eq!(DType::with_kserve_name(dtype.kserve_name()), Some(dtype));
        }
    }
}
