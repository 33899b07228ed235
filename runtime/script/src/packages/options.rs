//! The options of a package function: an object map whose unknown keys are refused.

use rhai::{Array, Dynamic, ImmutableString, Map};

use crate::sandbox::Fallible;
use crate::suggestion::suggestion;
use flagperf_config::nearest;

/// Reads the options that a script passed to a function. Each read removes its option; those that remain at the end are
/// unknown.
pub(super) struct FunctionOptions {
    function: &'static str,
    /// The name of the layer that the function adds to a graph; empty for other functions.
    layer: String,
    remaining: Map,
    known: Vec<&'static str>,
}

impl FunctionOptions {
    pub(super) fn new(function: &'static str, options: Map) -> Self {
        FunctionOptions { function, layer: String::new(), remaining: options, known: Vec::new() }
    }

    /// Reads the options of the layer `name`, which errors then name.
    pub(super) fn for_layer(function: &'static str, name: &str, options: Map) -> Self {
        FunctionOptions { layer: name.to_owned(), ..FunctionOptions::new(function, options) }
    }

    /// Returns the function and the layer, for errors.
    fn subject(&self) -> String {
        match self.layer.as_str() {
            "" => format!("`{}`", self.function),
            layer => format!("`{}` of layer `{layer}`", self.function),
        }
    }

    fn take(&mut self, key: &'static str) -> Option<Dynamic> {
        self.known.push(key);
        self.remaining.remove(key).filter(|value| !value.is_unit())
    }

    /// Reads a whole number of at least 0.
    pub(super) fn size(&mut self, key: &'static str) -> Fallible<Option<usize>> {
        self.take(key).map(|value| self.to_size(key, &value)).transpose()
    }

    /// Reads a required whole number of at least 0.
    pub(super) fn required_size(&mut self, key: &'static str) -> Fallible<usize> {
        self.size(key)?.ok_or_else(|| self.missing(key).into())
    }

    /// Reads one whole number of at least 0, or an array of them.
    pub(super) fn list(&mut self, key: &'static str) -> Fallible<Option<Vec<usize>>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let numbers = match value.read_lock::<Array>() {
            Some(array) => array.iter().map(|value| self.to_size(key, value)).collect::<Fallible<_>>()?,
            None => vec![self.to_size(key, &value)?],
        };
        Ok(Some(numbers))
    }

    /// Reads one whole number for both directions, or two: down and right.
    pub(super) fn sizes(&mut self, key: &'static str) -> Fallible<Option<[usize; 2]>> {
        let subject = self.subject();
        match self.list(key)?.as_deref() {
            None => Ok(None),
            Some(&[both]) => Ok(Some([both; 2])),
            Some(&[down, right]) => Ok(Some([down, right])),
            Some(_) => Err(format!("{subject}: `{key}` must be one whole number or two").into()),
        }
    }

    /// Reads one or two whole numbers as [`FunctionOptions::sizes`] does, and requires the option.
    pub(super) fn required_sizes(&mut self, key: &'static str) -> Fallible<[usize; 2]> {
        self.sizes(key)?.ok_or_else(|| self.missing(key).into())
    }

    /// Reads text.
    pub(super) fn text(&mut self, key: &'static str) -> Fallible<Option<ImmutableString>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let text = value.read_lock::<ImmutableString>().map(|text| text.clone());
        text.map(Some).ok_or_else(|| self.type_error(key, "text", &value).into())
    }

    /// Reads required text.
    pub(super) fn required_text(&mut self, key: &'static str) -> Fallible<ImmutableString> {
        self.text(key)?.ok_or_else(|| self.missing(key).into())
    }

    /// Reads a required option of any type.
    pub(super) fn required(&mut self, key: &'static str) -> Fallible<Dynamic> {
        self.take(key).ok_or_else(|| self.missing(key).into())
    }

    /// Returns the value of an option of any type.
    pub(super) fn value(&mut self, key: &'static str) -> Option<Dynamic> {
        self.take(key)
    }

    /// Reads a number.
    pub(super) fn number(&mut self, key: &'static str) -> Fallible<Option<f64>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        number(&value).map(Some).ok_or_else(|| self.type_error(key, "a number", &value).into())
    }

    /// Reads a required number.
    pub(super) fn required_number(&mut self, key: &'static str) -> Fallible<f64> {
        self.number(key)?.ok_or_else(|| self.missing(key).into())
    }

    /// Removes the option and returns true if its value is the text `expected`; leaves any other value in place.
    pub(super) fn take_if_text(&mut self, key: &'static str, expected: &str) -> bool {
        let is_expected = self
            .remaining
            .get(key)
            .is_some_and(|value| value.read_lock::<ImmutableString>().is_some_and(|t| *t == expected));
        if is_expected {
            self.take(key);
        }
        is_expected
    }

    /// Reads `true` or `false`.
    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> Fallible<bool> {
        let Some(value) = self.take(key) else { return Ok(default) };
        value.as_bool().map_err(|_| self.type_error(key, "true or false", &value).into())
    }

    /// Reads a map, empty by default.
    pub(super) fn map(&mut self, key: &'static str) -> Fallible<Map> {
        let Some(value) = self.take(key) else { return Ok(Map::new()) };
        let type_error = self.type_error(key, "an object map", &value);
        value.try_cast::<Map>().ok_or_else(|| type_error.into())
    }

    /// Describes a required option that is missing: it may be there with a misspelled name.
    pub(super) fn missing(&self, key: &str) -> String {
        let subject = self.subject();
        let misspelled = self.remaining.keys().find(|given| nearest(given, [key]).is_some());
        match misspelled.filter(|given| !self.known.contains(&given.as_str())) {
            Some(given) => format!("{subject} has no option `{given}`; did you mean `{key}`?"),
            None => format!("{subject} requires the option `{key}`"),
        }
    }

    /// Refuses options that were not read.
    pub(super) fn finish(self) -> Fallible<()> {
        match self.remaining.keys().next() {
            Some(key) => {
                let near = suggestion(key, self.known.iter().copied());
                Err(format!("{} has no option `{key}`{near}", self.subject()).into())
            }
            None => Ok(()),
        }
    }

    fn to_size(&self, key: &str, value: &Dynamic) -> Fallible<usize> {
        let size = value.as_int().ok().and_then(|size| usize::try_from(size).ok());
        size.ok_or_else(|| self.type_error(key, "a whole number of at least 0", value).into())
    }

    fn type_error(&self, key: &str, expected: &str, value: &Dynamic) -> String {
        format!("{}: `{key}` must be {expected}, not `{value}`", self.subject())
    }
}

/// A parameter of a package function that is an integer or a float: a script may write `0` for `0.0`. Package functions have no
/// parameter of type `f64`.
pub(super) type Number = Dynamic;

/// Returns the value of an integer or a float.
pub(super) fn number(value: &Dynamic) -> Option<f64> {
    value.as_float().ok().or_else(|| value.as_int().ok().map(|int| int as f64))
}

/// Returns the value of an integer or a finite float; `what` describes it in the error.
pub(super) fn finite_number(what: &str, value: &Dynamic) -> Fallible<f64> {
    let error = || format!("{what} must be a finite number, not `{value}`");
    number(value).filter(|number| number.is_finite()).ok_or_else(|| error().into())
}

/// Converts a whole number of at least 0; `what` describes it in the error.
pub(super) fn size(what: &str, value: i64) -> Fallible<usize> {
    usize::try_from(value).map_err(|_| format!("{what} must be a whole number of at least 0, not `{value}`").into())
}

/// Converts an array of whole numbers of at least 0; `what` describes it in the error.
pub(super) fn sizes(what: &str, values: &Array) -> Fallible<Vec<usize>> {
    let whole = |value: &Dynamic| value.as_int().ok().and_then(|int| usize::try_from(int).ok());
    let sizes: Option<Vec<usize>> = values.iter().map(whole).collect();
    sizes.ok_or_else(|| format!("{what} must contain only whole numbers of at least 0").into())
}
