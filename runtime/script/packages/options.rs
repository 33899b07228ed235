//! Options of a package function: an object map whose unknown keys are refused.

use rhai::{Array, Dynamic, ImmutableString, Map};

use crate::script::nearest::nearest;
use crate::script::sandbox::Fallible;

/// The options that a script gave; every one that is asked for is taken out, what is left at the end is unknown.
pub(super) struct Options {
    function: &'static str,
    given: Map,
    known: Vec<&'static str>,
}

impl Options {
    pub(super) fn new(function: &'static str, given: Map) -> Self {
        Options { function, given, known: Vec::new() }
    }

    fn take(&mut self, key: &'static str) -> Option<Dynamic> {
        self.known.push(key);
        self.given.remove(key).filter(|value| !value.is_unit())
    }

    /// A whole number of at least 0.
    pub(super) fn size(&mut self, key: &'static str) -> Fallible<Option<usize>> {
        self.take(key).map(|value| self.to_size(key, &value)).transpose()
    }

    /// A whole number of at least 0 that must be there.
    pub(super) fn required_size(&mut self, key: &'static str) -> Fallible<usize> {
        let function = self.function;
        self.size(key)?.ok_or_else(|| format!("`{function}` needs the option `{key}`").into())
    }

    /// Whole numbers of at least 0: one, or an array of them.
    pub(super) fn list(&mut self, key: &'static str) -> Fallible<Option<Vec<usize>>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let numbers = match value.read_lock::<Array>() {
            Some(array) => array.iter().map(|value| self.to_size(key, value)).collect::<Fallible<_>>()?,
            None => vec![self.to_size(key, &value)?],
        };
        Ok(Some(numbers))
    }

    /// One whole number for both directions, or two: down and right.
    pub(super) fn sizes(&mut self, key: &'static str) -> Fallible<Option<[usize; 2]>> {
        let function = self.function;
        match self.list(key)?.as_deref() {
            None => Ok(None),
            Some(&[both]) => Ok(Some([both; 2])),
            Some(&[down, right]) => Ok(Some([down, right])),
            Some(_) => Err(format!("`{function}`: `{key}` is one whole number or two").into()),
        }
    }

    /// The same, and it must be there.
    pub(super) fn required_sizes(&mut self, key: &'static str) -> Fallible<[usize; 2]> {
        let function = self.function;
        self.sizes(key)?.ok_or_else(|| format!("`{function}` needs the option `{key}`").into())
    }

    /// A number.
    pub(super) fn number(&mut self, key: &'static str) -> Fallible<Option<f64>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        number(&value).map(Some).ok_or_else(|| self.wrong(key, "a number", &value).into())
    }

    /// Takes the option out only if it is the text `expected`.
    pub(super) fn is(&mut self, key: &'static str, expected: &str) -> bool {
        let is = self
            .given
            .get(key)
            .is_some_and(|value| value.read_lock::<ImmutableString>().is_some_and(|t| *t == expected));
        if is {
            self.take(key);
        }
        is
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> Fallible<bool> {
        let Some(value) = self.take(key) else { return Ok(default) };
        value.as_bool().map_err(|_| self.wrong(key, "true or false", &value).into())
    }

    /// A map, empty when left out.
    pub(super) fn map(&mut self, key: &'static str) -> Fallible<Map> {
        let Some(value) = self.take(key) else { return Ok(Map::new()) };
        let wrong = self.wrong(key, "an object map", &value);
        value.try_cast::<Map>().ok_or_else(|| wrong.into())
    }

    /// Refuses what was not asked for.
    pub(super) fn finish(self) -> Fallible<()> {
        match self.given.keys().next() {
            Some(key) => {
                let near = nearest(key, self.known.iter().copied());
                Err(format!("`{}` has no option `{key}`{near}", self.function).into())
            }
            None => Ok(()),
        }
    }

    fn to_size(&self, key: &str, value: &Dynamic) -> Fallible<usize> {
        let size = value.as_int().ok().and_then(|size| usize::try_from(size).ok());
        size.ok_or_else(|| self.wrong(key, "a whole number of at least 0", value).into())
    }

    fn wrong(&self, key: &str, expected: &str, value: &Dynamic) -> String {
        format!("`{}`: `{key}` is {expected}, not `{value}`", self.function)
    }
}

/// A number of either kind.
pub(super) fn number(value: &Dynamic) -> Option<f64> {
    value.as_float().ok().or_else(|| value.as_int().ok().map(|int| int as f64))
}

/// A whole number of at least 0, named for the error.
pub(super) fn size(what: &str, value: i64) -> Fallible<usize> {
    usize::try_from(value).map_err(|_| format!("{what} is a whole number of at least 0, not `{value}`").into())
}

/// Whole numbers of at least 0, named for the error.
pub(super) fn sizes(what: &str, values: &Array) -> Fallible<Vec<usize>> {
    let whole = |value: &Dynamic| value.as_int().ok().and_then(|int| usize::try_from(int).ok());
    let sizes: Option<Vec<usize>> = values.iter().map(whole).collect();
    sizes.ok_or_else(|| format!("{what} holds whole numbers of at least 0").into())
}
