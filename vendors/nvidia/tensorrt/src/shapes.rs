//! Shapes in the notation of `trtexec`, which FlagPerf's configurations use: `input:1x3x224x224,mask:1x77`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A shape for each input.
pub type Shapes = BTreeMap<String, Vec<i64>>;

/// The shapes that an engine supports: from `min` to `max`, tuned for `opt`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The smallest shapes.
    pub min: Shapes,
    /// The shapes to tune for.
    pub opt: Shapes,
    /// The largest shapes.
    pub max: Shapes,
}

/// Parses `input:1x3x224x224,mask:1x77`.
///
/// # Errors
/// A message that contains the malformed part.
pub fn parse(text: &str) -> Result<Shapes, String> {
    let mut shapes = Shapes::new();
    for part in text.split(',').map(str::trim) {
        // A name may contain a colon.
        let (name, sizes) = part.rsplit_once(':').ok_or_else(|| format!("`{part}` is not `name:1x3x224x224`"))?;
        let name = name.trim_matches('\'');
        let sizes: Option<Vec<i64>> =
            sizes.split('x').map(|size| size.parse().ok().filter(|size| *size >= 0)).collect();
        let sizes = sizes.ok_or_else(|| format!("`{part}` is not `name:1x3x224x224`"))?;
        if name.is_empty() || shapes.insert(name.to_owned(), sizes).is_some() {
            return Err(format!("`{part}` has an empty or a repeated name"));
        }
    }
    Ok(shapes)
}

/// Formats a shape: `1x3x224x224`.
pub fn format_shape(shape: &[i64]) -> String {
    shape.iter().map(i64::to_string).collect::<Vec<_>>().join("x")
}

impl Profile {
    /// Parses a profile from three strings.
    ///
    /// # Errors
    /// The name of the wrong option, and the reason.
    pub fn parse(min: &str, opt: &str, max: &str) -> Result<Self, (&'static str, String)> {
        let shapes = |option, text| parse(text).map_err(|reason| (option, reason));
        let (min, opt, max) = (shapes("minShapes", min)?, shapes("optShapes", opt)?, shapes("maxShapes", max)?);
        for (option, from, to) in [("optShapes", &min, &opt), ("maxShapes", &opt, &max)] {
            check_order(from, to).map_err(|reason| (option, reason))?;
        }
        Ok(Profile { min, opt, max })
    }
}

/// Rejects shapes `to` that belong to other inputs than `from`, or are smaller.
fn check_order(from: &Shapes, to: &Shapes) -> Result<(), String> {
    for (name, smaller) in from {
        let shape = to.get(name).ok_or_else(|| format!("input `{name}` is missing"))?;
        if shape.len() != smaller.len() || shape.iter().zip(smaller).any(|(size, smaller)| size < smaller) {
            let (shape, smaller) = (format_shape(shape), format_shape(smaller));
            return Err(format!(
                "`{name}:{shape}` is smaller than `{name}:{smaller}`, or has another number of dimensions"
            ));
        }
    }
    match to.keys().find(|name| !from.contains_key(*name)) {
        Some(name) => Err(format!("input `{name}` is only in this option")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_parsed_as_by_trtexec() {
        let shapes = parse("input:1x3x224x224, 'a:b':8").unwrap();
        assert_eq!(shapes["input"], [1, 3, 224, 224]);
        assert_eq!(shapes["a:b"], [8]);
    }

    #[test]
    fn the_error_for_a_malformed_shape_contains_it() {
        for text in ["input", "input:", "input:1x-3", "input:1xb", ""] {
            let reason = parse(text).unwrap_err();
            assert_eq!(reason, format!("`{text}` is not `name:1x3x224x224`"));
        }
        assert_eq!(parse("x:1,x:2").unwrap_err(), "`x:2` has an empty or a repeated name");
    }

    #[test]
    fn the_shapes_of_a_profile_must_be_in_increasing_order() {
        let profile = Profile::parse("x:1x3", "x:8x3", "x:16x3").unwrap();
        assert_eq!((&profile.min["x"][..], &profile.max["x"][..]), (&[1, 3][..], &[16, 3][..]));
        let error = |min, opt, max| Profile::parse(min, opt, max).unwrap_err();
        let (option, reason) = error("x:1x3", "x:8x3", "x:4x3");
        let expected = "`x:4x3` is smaller than `x:8x3`, or has another number of dimensions";
        assert_eq!((option, &*reason), ("maxShapes", expected));
        assert_eq!(error("x:1x3", "x:8", "x:8").0, "optShapes");
        assert_eq!(error("x:1", "x:2,y:2", "x:2").1, "input `y` is only in this option");
        assert_eq!(error("x:1,y:1", "x:2", "x:2").1, "input `y` is missing");
    }
}
