//! Shapes in the notation of `trtexec`, which FlagPerf's configurations are written in: `input:1x3x224x224,mask:1x77`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A shape for each input.
pub type Shapes = BTreeMap<String, Vec<i64>>;

/// The shapes that an engine takes: from `min` to `max`, and fastest at `opt`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The smallest.
    pub min: Shapes,
    /// Those to tune for.
    pub opt: Shapes,
    /// The largest.
    pub max: Shapes,
}

/// Reads `input:1x3x224x224,mask:1x77`.
///
/// # Errors
/// What is no shape.
pub fn read(text: &str) -> Result<Shapes, String> {
    let mut shapes = Shapes::new();
    for part in text.split(',').map(str::trim) {
        // A name may have a colon of its own.
        let (name, sizes) = part.rsplit_once(':').ok_or_else(|| format!("`{part}` is not `name:1x3x224x224`"))?;
        let name = name.trim_matches('\'');
        let sizes: Option<Vec<i64>> =
            sizes.split('x').map(|size| size.parse().ok().filter(|size| *size >= 0)).collect();
        let sizes = sizes.ok_or_else(|| format!("`{part}` is not `name:1x3x224x224`"))?;
        if name.is_empty() || shapes.insert(name.to_owned(), sizes).is_some() {
            return Err(format!("`{part}` has a name that is empty or was there before"));
        }
    }
    Ok(shapes)
}

/// A shape as it is written: `1x3x224x224`.
pub fn written(shape: &[i64]) -> String {
    shape.iter().map(i64::to_string).collect::<Vec<_>>().join("x")
}

impl Profile {
    /// A profile of three texts.
    ///
    /// # Errors
    /// What is wrong, and in which of the three.
    pub fn read(min: &str, opt: &str, max: &str) -> Result<Self, (&'static str, String)> {
        let shapes = |option, text| read(text).map_err(|reason| (option, reason));
        let (min, opt, max) = (shapes("minShapes", min)?, shapes("optShapes", opt)?, shapes("maxShapes", max)?);
        for (option, from, to) in [("optShapes", &min, &opt), ("maxShapes", &opt, &max)] {
            check(from, to).map_err(|reason| (option, reason))?;
        }
        Ok(Profile { min, opt, max })
    }
}

/// Refuses shapes that are of other inputs than the ones before, or smaller.
fn check(from: &Shapes, to: &Shapes) -> Result<(), String> {
    for (name, before) in from {
        let shape = to.get(name).ok_or_else(|| format!("input `{name}` is missing"))?;
        if shape.len() != before.len() || shape.iter().zip(before).any(|(size, before)| size < before) {
            let (shape, before) = (written(shape), written(before));
            return Err(format!("`{name}:{shape}` is less than `{name}:{before}`, or of other dimensions"));
        }
    }
    match to.keys().find(|name| !from.contains_key(*name)) {
        Some(name) => Err(format!("input `{name}` is here and in none of the others")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_as_trtexec_reads_them() {
        let shapes = read("input:1x3x224x224, 'a:b':8").unwrap();
        assert_eq!(shapes["input"], [1, 3, 224, 224]);
        assert_eq!(shapes["a:b"], [8]);
    }

    #[test]
    fn what_is_no_shape_is_named() {
        for text in ["input", "input:", "input:1x-3", "input:1xb", ""] {
            let reason = read(text).unwrap_err();
            assert_eq!(reason, format!("`{text}` is not `name:1x3x224x224`"));
        }
        assert_eq!(read("x:1,x:2").unwrap_err(), "`x:2` has a name that is empty or was there before");
    }

    #[test]
    fn a_profile_goes_from_small_to_large() {
        let profile = Profile::read("x:1x3", "x:8x3", "x:16x3").unwrap();
        assert_eq!((&profile.min["x"][..], &profile.max["x"][..]), (&[1, 3][..], &[16, 3][..]));
        let refused = |min, opt, max| Profile::read(min, opt, max).unwrap_err();
        let (option, reason) = refused("x:1x3", "x:8x3", "x:4x3");
        assert_eq!((option, &*reason), ("maxShapes", "`x:4x3` is less than `x:8x3`, or of other dimensions"));
        assert_eq!(refused("x:1x3", "x:8", "x:8").0, "optShapes");
        assert_eq!(refused("x:1", "x:2,y:2", "x:2").1, "input `y` is here and in none of the others");
        assert_eq!(refused("x:1,y:1", "x:2", "x:2").1, "input `y` is missing");
    }
}
