//! Finds the axis to split and the sizes of its parts, for the packages `nn` and `tensor`.

use crate::sandbox::Fallible;

/// Returns the place of an axis among `rank` dimensions; a negative axis counts from the last.
pub(super) fn axis_place(axis: i64, rank: usize) -> Option<usize> {
    usize::try_from(if axis < 0 { axis + rank as i64 } else { axis }).ok().filter(|place| *place < rank)
}

/// Returns the sizes of the parts of a dimension of the size `all`: every part has the size `each`, except that the last may
/// be smaller. More than `most` parts are an error.
pub(super) fn equal_parts(all: usize, each: usize, most: usize) -> Fallible<Vec<usize>> {
    let each = each.max(1);
    let count = all.div_ceil(each);
    if count > most {
        return Err(format!("a dimension can be split into at most {most} parts, not {count}").into());
    }
    Ok((0..count).map(|part| each.min(all - part * each)).collect())
}
