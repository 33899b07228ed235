//! The elements of a tensor as JSON: read from arrays of any depth, and written as one flat array.

use std::fmt;

use flagperf_core::tensor::DType;
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};

/// An element as JSON states it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Element {
    Unsigned(u64),
    Negative(i64),
    Real(f64),
    Truth(bool),
}

/// The elements of `data` in row-major order, whatever the depth of its arrays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Elements(Vec<Element>);

impl<'de> serde::Deserialize<'de> for Elements {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut elements = Vec::new();
        Nested(&mut elements).deserialize(deserializer)?;
        Ok(Elements(elements))
    }
}

/// Appends a number, or the numbers of an array, to the elements.
struct Nested<'e>(&'e mut Vec<Element>);

impl<'de> DeserializeSeed<'de> for Nested<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Nested<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers, true or false, in arrays of any depth (no input of a model is of type BYTES)")
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.0.push(Element::Unsigned(number));
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.0.push(u64::try_from(number).map_or(Element::Negative(number), Element::Unsigned));
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.0.push(Element::Real(number));
        Ok(())
    }

    fn visit_bool<E>(self, truth: bool) -> Result<(), E> {
        self.0.push(Element::Truth(truth));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Nested(self.0))?.is_some() {}
        Ok(())
    }
}

impl Elements {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the elements as bytes of a tensor, in little-endian order.
    ///
    /// # Errors
    /// When an element is no value of the type; the message has its position.
    pub fn to_bytes(&self, dtype: DType) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::with_capacity(self.0.len() * dtype.size());
        for (at, element) in self.0.iter().enumerate() {
            if append(*element, dtype, &mut bytes).is_none() {
                let name = dtype.kserve_name();
                return Err(match dtype {
                    DType::F16 | DType::BF16 => {
                        format!("`data` cannot contain {name}: send the tensor as binary data (`binary_data_size`)")
                    }
                    _ => format!("element {at} of `data` is {element}, which is no value of {name}"),
                });
            }
        }
        Ok(bytes)
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Unsigned(number) => number.fmt(f),
            Element::Negative(number) => number.fmt(f),
            Element::Real(number) => number.fmt(f),
            Element::Truth(truth) => truth.fmt(f),
        }
    }
}

/// Appends an element as a value of a type; `None` if it is none.
fn append(element: Element, dtype: DType, bytes: &mut Vec<u8>) -> Option<()> {
    macro_rules! whole {
        ($type:ty) => {
            match element {
                Element::Unsigned(number) => bytes.extend(<$type>::try_from(number).ok()?.to_le_bytes()),
                Element::Negative(number) => bytes.extend(<$type>::try_from(number).ok()?.to_le_bytes()),
                Element::Real(_) | Element::Truth(_) => return None,
            }
        };
    }
    match dtype {
        DType::F64 => bytes.extend(real(element)?.to_le_bytes()),
        DType::F32 => {
            let number = real(element)? as f32;
            bytes.extend(number.is_finite().then_some(number)?.to_le_bytes());
        }
        DType::F16 | DType::BF16 => return None,
        DType::I64 => whole!(i64),
        DType::I32 => whole!(i32),
        DType::I16 => whole!(i16),
        DType::I8 => whole!(i8),
        DType::U64 => whole!(u64),
        DType::U32 => whole!(u32),
        DType::U16 => whole!(u16),
        DType::U8 => whole!(u8),
        DType::Bool => bytes.push(match element {
            Element::Truth(truth) => u8::from(truth),
            Element::Unsigned(number @ (0 | 1)) => u8::from(number == 1),
            _ => return None,
        }),
    }
    Some(())
}

fn real(element: Element) -> Option<f64> {
    match element {
        Element::Unsigned(number) => Some(number as f64),
        Element::Negative(number) => Some(number as f64),
        Element::Real(number) => Some(number),
        Element::Truth(_) => None,
    }
}

/// Appends the elements of a tensor to JSON, as one flat array.
///
/// # Errors
/// When JSON has no form for the type, or for an element.
pub fn write_elements(dtype: DType, bytes: &[u8], json: &mut Vec<u8>) -> Result<(), String> {
    macro_rules! numbers {
        ($type:ty, $is_writable:expr) => {
            write_each::<$type, { size_of::<$type>() }>(bytes, json, <$type>::from_le_bytes, $is_writable)
        };
    }
    match dtype {
        DType::F64 => numbers!(f64, |number| number.is_finite()),
        DType::F32 => numbers!(f32, |number| number.is_finite()),
        DType::F16 | DType::BF16 => Err(format!("JSON has no form for {}", dtype.kserve_name())),
        DType::I64 => numbers!(i64, |_| true),
        DType::I32 => numbers!(i32, |_| true),
        DType::I16 => numbers!(i16, |_| true),
        DType::I8 => numbers!(i8, |_| true),
        DType::U64 => numbers!(u64, |_| true),
        DType::U32 => numbers!(u32, |_| true),
        DType::U16 => numbers!(u16, |_| true),
        DType::U8 => numbers!(u8, |_| true),
        DType::Bool => write_each::<bool, 1>(bytes, json, |byte| byte[0] != 0, |_| true),
    }
}

fn write_each<T: serde::Serialize + fmt::Display + Copy, const SIZE: usize>(
    bytes: &[u8],
    json: &mut Vec<u8>,
    read: fn([u8; SIZE]) -> T,
    is_writable: fn(T) -> bool,
) -> Result<(), String> {
    let (elements, _) = bytes.as_chunks::<SIZE>();
    json.push(b'[');
    for (at, element) in elements.iter().enumerate() {
        let element = read(*element);
        if !is_writable(element) {
            return Err(format!("element {at} is {element}, for which JSON has no form"));
        }
        if at > 0 {
            json.push(b',');
        }
        serde_json::to_writer(&mut *json, &element).map_err(|error| error.to_string())?;
    }
    json.push(b']');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str, dtype: DType) -> Result<Vec<u8>, String> {
        let elements: Elements = serde_json::from_str(json).map_err(|error| error.to_string())?;
        elements.to_bytes(dtype)
    }

    #[test]
    fn nested_and_flat_arrays_have_the_same_elements() {
        let flat = read("[1, 2.5, -3, 4]", DType::F32).unwrap();
        assert_eq!(read("[[1, 2.5], [-3, 4]]", DType::F32).unwrap(), flat);
        let mut json = Vec::new();
        write_elements(DType::F32, &flat, &mut json).unwrap();
        assert_eq!(String::from_utf8(json).unwrap(), "[1.0,2.5,-3.0,4.0]");
    }

    #[test]
    fn an_element_that_is_no_value_of_the_type_is_named_with_its_position() {
        for (json, dtype, expected) in [
            ("[0, 256]", DType::U8, "element 1 of `data` is 256, which is no value of UINT8"),
            ("[-1]", DType::U64, "element 0 of `data` is -1, which is no value of UINT64"),
            ("[1.5]", DType::I32, "element 0 of `data` is 1.5, which is no value of INT32"),
            ("[true]", DType::F32, "element 0 of `data` is true, which is no value of FP32"),
            ("[2]", DType::Bool, "element 0 of `data` is 2, which is no value of BOOL"),
            ("[1]", DType::F16, "`data` cannot contain FP16: send the tensor as binary data (`binary_data_size`)"),
        ] {
            assert_eq!(read(json, dtype), Err(expected.to_owned()));
        }
        assert!(read("[1e39]", DType::F32).unwrap_err().ends_with("which is no value of FP32"));
        assert_eq!(read("[true, 0]", DType::Bool), Ok(vec![1, 0]));
    }

    #[test]
    fn text_and_arrays_that_are_nested_too_deeply_are_errors() {
        assert!(read("[\"a\"]", DType::F32).unwrap_err().contains("expected numbers"));
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(read(&deep, DType::F32).unwrap_err().starts_with("recursion limit exceeded"));
    }

    #[test]
    fn a_number_without_a_form_in_json_is_an_error() {
        let bytes: Vec<u8> = [1.0, f32::NAN].iter().flat_map(|number| number.to_le_bytes()).collect();
        let error = write_elements(DType::F32, &bytes, &mut Vec::new()).unwrap_err();
        assert_eq!(error, "element 1 is NaN, for which JSON has no form");
    }
}
