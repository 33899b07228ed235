//! Writes a model with changed weights. An engine that knows the weights or the answers of the case is found with it.

use std::fs;
use std::path::{Path, PathBuf};

use flagperf_onnx::{Graph, Model, WeightReader, WeightSource};
use indexmap::IndexMap;

use super::export;
use super::phase::failure;
use flagperf_core::event::Failure;
use flagperf_core::tensor::{Tensor, TensorError};
use flagperf_plan::Manifest;

/// Writes the model with changed weights below `scratch`, with the file names of `original`, and returns the path of its
/// manifest. Returns `None` when the model has no weights that can be changed.
///
/// # Errors
/// When weights cannot be read, or the files cannot be written.
pub fn write_changed_model(
    graphs: &IndexMap<String, Graph>,
    original: &Path,
    scratch: &Path,
) -> Result<Option<PathBuf>, Failure> {
    let mut model = Model { graphs: graphs.clone() };
    let mut changed = 0;
    for graph in model.graphs.values_mut() {
        changed += change_weights(graph)?;
    }
    if changed == 0 {
        return Ok(None);
    }
    let folder = scratch.join("changed");
    fs::create_dir_all(&folder).map_err(|e| failure(&format!("`{}`: {e}", folder.display()), ""))?;
    let file = Manifest::model_beside(original);
    let path = folder.join(file.file_name().unwrap_or(original.as_os_str()));
    export::write_model(&model, &path)?;
    Ok(Some(Manifest::path_beside(&path)))
}

/// Rotates every weight of at least two dimensions by one row, and returns the number of these weights. The distribution of
/// values stays, so that neither the time of a step nor the range of values has a reason to change.
fn change_weights(graph: &mut Graph) -> Result<usize, Failure> {
    let rotated =
        graph.weights.iter().filter(|(_, weight)| weight.spec.fixed_shape().is_some_and(|shape| shape.len() >= 2));
    let names: Vec<String> = rotated.map(|(name, _)| name.clone()).collect();
    let mut values = Vec::with_capacity(names.len());
    let mut reader = WeightReader::new(graph);
    for name in names {
        let tensor = reader.tensor(&name).map_err(|e| failure(&e, ""))?;
        let is_number = tensor.dtype().is_float() || tensor.dtype().size() == 1;
        if is_number && tensor.len() > 1 {
            values.push((name, rotate(&tensor).map_err(|e| failure(&e, ""))?));
        }
    }
    let count = values.len();
    for (name, tensor) in values {
        if let Some(weight) = graph.weights.get_mut(&name) {
            weight.source = WeightSource::Value(tensor);
        }
    }
    Ok(count)
}

/// Moves each row to the place of the next one; a tensor of one row, each element.
fn rotate(tensor: &Tensor) -> Result<Tensor, TensorError> {
    let rows = tensor.shape().first().copied().filter(|rows| *rows > 1).unwrap_or(tensor.len());
    let mut bytes = tensor.bytes().to_vec();
    let row = bytes.len() / rows;
    bytes.rotate_right(row);
    Tensor::from_bytes(tensor.shape(), tensor.dtype(), &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_moves_to_the_place_of_the_next_one() {
        let tensor = |shape: &[usize], values: &[f32]| Tensor::from_vec(shape.to_vec(), values.to_vec()).unwrap();
        let rotated = rotate(&tensor(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).unwrap();
        assert_eq!(
            (rotated.shape(), rotated.as_slice::<f32>().unwrap()),
            (&[3, 2][..], &[5.0, 6.0, 1.0, 2.0, 3.0, 4.0][..])
        );
        let rotated = rotate(&tensor(&[1, 3], &[1.0, 2.0, 3.0])).unwrap();
        assert_eq!(rotated.as_slice::<f32>().unwrap(), [3.0, 1.0, 2.0]);
    }
}
