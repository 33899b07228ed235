//! The classification extension: instead of an output, its largest values, each as `value:index` or `value:index:label`.

use flagperf_core::tensor::{Tensor, TensorError};

use super::frame::TensorHead;

/// The largest values of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Classes {
    /// The shape: a row for each row of the output, or none if it has one row.
    pub shape: Vec<usize>,
    /// The texts in order.
    pub texts: Vec<String>,
}

/// Returns the `count` largest values of each row of an output, the largest first; of equal ones, the first. An output of
/// a model that joins requests has rows; another one has them only if its first dimension is larger than 1, as of
/// Triton's models without a batch.
///
/// # Errors
/// When the bytes are not those of the tensor.
pub fn classify(
    head: &TensorHead,
    bytes: &[u8],
    count: usize,
    has_rows: bool,
    labels: &[String],
) -> Result<Classes, TensorError> {
    let tensor = Tensor::from_bytes(head.shape.clone(), head.dtype, bytes)?;
    let values = tensor.to_f64();
    let first = head.shape.first().copied().unwrap_or(1);
    let rows = if has_rows || (head.shape.len() > 1 && first > 1) { first } else { 1 };
    let columns = values.len().checked_div(rows).unwrap_or(0);
    let count = count.min(columns);
    let mut texts = Vec::with_capacity(rows * count);
    for row in values.chunks(columns.max(1)).take(rows) {
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
        texts.extend(order.iter().take(count).map(|index| text(row[*index], *index, head.dtype.is_float(), labels)));
    }
    let shape = if has_rows || rows > 1 { vec![rows, count] } else { vec![count] };
    Ok(Classes { shape, texts })
}

/// Returns a value as Triton writes it: six digits after the point of a real number.
fn text(value: f64, index: usize, is_float: bool, labels: &[String]) -> String {
    let value = if is_float { format!("{value:.6}") } else { format!("{value}") };
    match labels.get(index) {
        Some(label) => format!("{value}:{index}:{label}"),
        None => format!("{value}:{index}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::tensor::DType;

    fn classes(shape: &[usize], values: &[f32], count: usize, has_rows: bool, labels: &[&str]) -> Classes {
        let head = TensorHead { shape: shape.to_vec(), dtype: DType::F32 };
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        classify(&head, &bytes, count, has_rows, &labels).unwrap()
    }

    #[test]
    fn the_largest_values_are_first_and_have_labels_where_there_are_some() {
        let one = classes(&[1, 4], &[0.5, 3.630_257, -1.0, 3.0], 2, false, &["cat", "dog"]);
        assert_eq!((one.shape, one.texts), (vec![2], vec!["3.630257:1:dog".to_owned(), "3.000000:3".to_owned()]));
    }

    #[test]
    fn each_row_has_its_own_classes_and_no_more_than_there_are_values() {
        let two = classes(&[2, 2], &[1.0, 2.0, 4.0, 3.0], 1, true, &[]);
        assert_eq!((two.shape, two.texts), (vec![2, 1], vec!["2.000000:1".to_owned(), "4.000000:0".to_owned()]));
        assert_eq!(classes(&[1, 2], &[1.0, 2.0], 9, true, &[]).shape, [1, 2]);
        assert_eq!(classes(&[0, 2], &[], 1, true, &[]).shape, [0, 0]);
    }
}
