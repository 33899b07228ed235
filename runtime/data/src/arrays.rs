//! Arrays in files as fields: the first dimension counts the samples.

use std::path::PathBuf;

use super::array_file::ArrayFile;
use super::tokens::write_tensor;
use super::{DataError, DataRoot, Dataset, Field, FieldRole, SampleError};
use flagperf_core::event::DatasetFacts;
use flagperf_core::hash::hash_bytes;
use flagperf_core::tensor::{DType, TensorSpec};

/// One field of a dataset of arrays.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayField {
    pub name: String,
    /// Which script functions may see it.
    pub role: FieldRole,
    /// A .npy or .safetensors file.
    pub file: PathBuf,
    /// Name of the tensor in a safetensors file; needed if it has several.
    pub key: Option<String>,
}

/// Opened arrays.
pub struct Arrays {
    arrays: Vec<ArrayFile>,
    fields: Vec<Field>,
    facts: DatasetFacts,
}

impl Arrays {
    /// Opens the files and checks their headers. Float inputs get the type `dtype`.
    ///
    /// # Errors
    /// When a file cannot be opened, an array has no first dimension or empty samples, or the arrays have different
    /// numbers of samples.
    pub fn open(root: &DataRoot, options: &[ArrayField], dtype: DType) -> Result<Self, DataError> {
        let open = |field: &ArrayField| ArrayFile::open(root, &field.file, None, field.key.as_deref());
        let arrays = options.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let Some(samples) = arrays.first().and_then(|array| array.shape.first().copied()).filter(|count| *count > 0)
        else {
            let path = options.first().map_or_else(|| "arrays".into(), |field| field.file.clone());
            return Err(DataError::Invalid {
                path,
                reason: "has no samples: its first dimension counts them".to_owned(),
            });
        };
        if let Some(other) = arrays.iter().find(|array| array.shape.first() != Some(&samples)) {
            let (found, first) = (other.shape.first().copied().unwrap_or(0), options[0].file.display());
            let reason = format!("has {found} samples, but `{first}` has {samples}");
            return Err(DataError::Invalid { path: other.path.clone(), reason });
        }
        if let Some(empty) = arrays.iter().find(|array| array.shape[1..].contains(&0)) {
            let reason = format!("its samples are empty: its shape is {:?}", empty.shape);
            return Err(DataError::Invalid { path: empty.path.clone(), reason });
        }
        let field = |(options, array): (&ArrayField, &ArrayFile)| {
            let stored = array.stored.dtype();
            let is_converted = options.role == FieldRole::Input && stored.is_float();
            let dtype = if is_converted { dtype } else { stored };
            let spec = TensorSpec::new(array.shape[1..].to_vec(), dtype);
            Field { name: options.name.clone(), role: options.role, spec }
        };
        let fields: Vec<Field> = options.iter().zip(&arrays).map(field).collect();
        let describe = |(field, array): (&Field, &ArrayFile)| {
            format!("{} {} from {} ({} bytes)", field.name, field.spec, array.path.display(), array.file_bytes)
        };
        let pipeline: Vec<String> = fields.iter().zip(&arrays).map(describe).collect();
        let index = pipeline.iter().zip(&arrays).map(|(text, array)| format!("{text} {}\n", array.content()));
        let facts = root.facts(root.path(), samples, hash_bytes(index.collect::<String>().as_bytes()), pipeline);
        Ok(Arrays { arrays, fields, facts })
    }
}

impl Dataset for Arrays {
    fn facts(&self) -> &DatasetFacts {
        &self.facts
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn sample_name(&self, index: usize) -> String {
        format!("{}: row {index}", self.arrays[0].path.display())
    }

    fn read(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        let failed = |reason| SampleError { sample: self.sample_name(index), reason };
        for ((array, field), out) in self.arrays.iter().zip(&self.fields).zip(fields) {
            let elements: usize = array.shape[1..].iter().product();
            let row = array.read(index * elements, elements);
            row.and_then(|row| write_tensor(&row.cast(field.spec.dtype), out)).map_err(failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(shape: &str, descr: &str, elements: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
        let length = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\0", &length[..], header.as_bytes(), elements].concat()
    }

    fn open(labels: &str, count: usize) -> Result<(tempfile::TempDir, Arrays), String> {
        let folder = tempfile::tempdir().unwrap();
        let floats: Vec<u8> = (0..6u8).flat_map(|at| f32::from(at).to_le_bytes()).collect();
        std::fs::write(folder.path().join("x.npy"), npy("3, 2", "<f4", &floats)).unwrap();
        let numbers: Vec<u8> = (0..count as i64).flat_map(i64::to_le_bytes).collect();
        std::fs::write(folder.path().join("y.npy"), npy(labels, "<i8", &numbers)).unwrap();
        let field =
            |name: &str, role| ArrayField { name: name.into(), role, file: format!("{name}.npy").into(), key: None };
        let fields = [field("x", FieldRole::Input), field("y", FieldRole::Truth)];
        let opened = Arrays::open(&DataRoot::open(folder.path()).unwrap(), &fields, DType::F16);
        opened.map(|arrays| (folder, arrays)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_row_of_each_array_is_a_sample_with_float_inputs_converted() {
        let (_folder, arrays) = open("3,", 3).unwrap();
        let specs: Vec<String> = arrays.fields().iter().map(|field| field.spec.to_string()).collect();
        assert_eq!((arrays.len(), specs), (3, vec!["2,f16".to_owned(), "i64".to_owned()]));
        let (mut x, mut y) = ([0; 4], [0; 8]);
        arrays.read(1, &mut [&mut x, &mut y]).unwrap();
        let halves: Vec<half::f16> = bytemuck::pod_collect_to_vec(&x);
        assert_eq!((halves[0].to_f32(), halves[1].to_f32(), i64::from_ne_bytes(y)), (2.0, 3.0, 1));
    }

    #[test]
    fn arrays_of_different_numbers_of_samples_are_refused_with_both() {
        assert_eq!(open("2,", 2).err().unwrap(), "`y.npy`: has 2 samples, but `x.npy` has 3");
        assert_eq!(open("", 1).err().unwrap(), "`y.npy`: has 0 samples, but `x.npy` has 3");
    }

    #[test]
    fn empty_samples_are_refused() {
        assert_eq!(open("3, 0", 0).err().unwrap(), "`y.npy`: its samples are empty: its shape is [3, 0]");
    }
}
