//! The value of a Python expression without a call: literals, names and arithmetic, within limits of depth and size.

use indexmap::IndexMap;
use ruff_python_ast::{
    DictItem, Expr, ExprFString, FStringPart, InterpolatedElement, InterpolatedStringElement, Number as PythonNumber,
    Operator, UnaryOp,
};
use serde_json::{Map, Number, Value};

use super::python::Assignment;
use super::python_text::PythonText;

/// Maximum depth of an expression.
const DEPTH_MAX: usize = 100;
/// Maximum size of the values that an expression takes from names.
const SIZE_MAX: usize = 100_000;

/// Returns the value of an expression.
///
/// # Errors
/// Why it is not read, as a sentence about the value.
pub(super) fn evaluate(
    expression: &Expr,
    text: &PythonText<'_>,
    names: &IndexMap<String, Assignment>,
) -> Result<Value, String> {
    Evaluation { text, names, depth: 0, size: 0 }.value(expression)
}

struct Evaluation<'t> {
    text: &'t PythonText<'t>,
    names: &'t IndexMap<String, Assignment>,
    depth: usize,
    size: usize,
}

impl Evaluation<'_> {
    fn value(&mut self, expression: &Expr) -> Result<Value, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("it is nested too deeply".to_owned());
        }
        let value = match expression {
            Expr::BooleanLiteral(literal) => literal.value.into(),
            Expr::NoneLiteral(_) => Value::Null,
            Expr::NumberLiteral(literal) => number(&literal.value)?,
            Expr::StringLiteral(literal) => literal.value.to_str().into(),
            Expr::FString(text) => self.formatted(text)?,
            Expr::Name(name) => self.named(&name.id)?,
            Expr::List(list) => self.items(&list.elts)?,
            Expr::Tuple(tuple) => self.items(&tuple.elts)?,
            Expr::Dict(dictionary) => self.map(&dictionary.items)?,
            Expr::BinOp(binary) => {
                let one = self.value(&binary.left)?;
                combine(one, binary.op, self.value(&binary.right)?)?
            }
            Expr::UnaryOp(unary) if unary.op == UnaryOp::USub => {
                combine(0.into(), Operator::Sub, self.value(&unary.operand)?)?
            }
            Expr::UnaryOp(unary) if unary.op == UnaryOp::UAdd => {
                combine(0.into(), Operator::Add, self.value(&unary.operand)?)?
            }
            Expr::Call(call) => return Err(format!("it is computed by a call (`{}`)", self.text.excerpt(&*call.func))),
            other => return Err(format!("it is computed (`{}`)", self.text.excerpt(other))),
        };
        self.depth -= 1;
        Ok(value)
    }

    fn named(&mut self, name: &str) -> Result<Value, String> {
        let value = self.names.get(name).and_then(|assignment| assignment.value.as_ref().ok());
        let value = value.ok_or_else(|| format!("it needs `{name}`, which is not read"))?;
        self.size += size(value);
        if self.size > SIZE_MAX {
            return Err("it is too long".to_owned());
        }
        Ok(value.clone())
    }

    /// Puts the values in braces into a text.
    fn formatted(&mut self, text: &ExprFString) -> Result<Value, String> {
        let mut whole = String::new();
        for part in &text.value {
            match part {
                FStringPart::Literal(literal) => whole += literal,
                FStringPart::FString(part) => {
                    for element in &part.elements {
                        match element {
                            InterpolatedStringElement::Literal(literal) => whole += &literal.value,
                            InterpolatedStringElement::Interpolation(element) => whole += &self.inserted(element)?,
                        }
                    }
                }
            }
        }
        Ok(whole.into())
    }

    /// Returns a value as Python inserts it into a text.
    fn inserted(&mut self, element: &InterpolatedElement) -> Result<String, String> {
        let is_plain = element.format_spec.is_none() && element.debug_text.is_none() && element.conversion.is_none();
        match self.value(&element.expression)? {
            Value::String(text) if is_plain => Ok(text),
            Value::Number(number) if is_plain && number.is_i64() => Ok(number.to_string()),
            _ => Err(format!("it is computed within a text (`{}`)", self.text.excerpt(element))),
        }
    }

    fn items(&mut self, items: &[Expr]) -> Result<Value, String> {
        items.iter().map(|item| self.value(item)).collect()
    }

    fn map(&mut self, items: &[DictItem]) -> Result<Value, String> {
        let mut entries = Map::new();
        for DictItem { key, value } in items {
            let key = key.as_ref().map(|key| self.value(key)).transpose()?;
            let key = key.as_ref().and_then(Value::as_str).ok_or("a key of it is no text")?;
            entries.insert(key.to_owned(), self.value(value)?);
        }
        Ok(Value::Object(entries))
    }
}

fn number(literal: &PythonNumber) -> Result<Value, String> {
    let finite = match literal {
        PythonNumber::Int(whole) => match whole.as_i64() {
            Some(whole) => return Ok(whole.into()),
            None => whole.to_string().parse().ok().and_then(Number::from_f64),
        },
        PythonNumber::Float(number) => Number::from_f64(*number),
        PythonNumber::Complex { .. } => return Err("it is a complex number".to_owned()),
    };
    finite.map(Value::Number).ok_or_else(|| "its number is too large".to_owned())
}

/// Computes a value from two.
///
/// # Errors
/// When Python may compute another value.
pub(super) fn combine(one: Value, operator: Operator, other: Value) -> Result<Value, String> {
    let refused = || format!("it is computed by `{}`", operator.as_str());
    match (one, other) {
        (Value::String(one), Value::String(other)) if operator == Operator::Add => Ok((one + &other).into()),
        (Value::Array(mut one), Value::Array(other)) if operator == Operator::Add => {
            one.extend(other);
            Ok(Value::Array(one))
        }
        (Value::Number(one), Value::Number(other)) => {
            if let (Some(one), Some(other)) = (one.as_i64(), other.as_i64()) {
                let whole = match operator {
                    Operator::Add => one.checked_add(other),
                    Operator::Sub => one.checked_sub(other),
                    Operator::Mult => one.checked_mul(other),
                    Operator::Pow => u32::try_from(other).ok().and_then(|power| one.checked_pow(power)),
                    Operator::FloorDiv if one >= 0 && other > 0 => one.checked_div(other),
                    Operator::Mod if one >= 0 && other > 0 => one.checked_rem(other),
                    _ => None,
                };
                if let Some(whole) = whole {
                    return Ok(whole.into());
                }
            }
            let (one, other) = (one.as_f64().ok_or_else(refused)?, other.as_f64().ok_or_else(refused)?);
            let computed = match operator {
                Operator::Add => one + other,
                Operator::Sub => one - other,
                Operator::Mult => one * other,
                Operator::Div => one / other,
                Operator::Pow => one.powf(other),
                _ => return Err(refused()),
            };
            Number::from_f64(computed).map(Value::Number).ok_or_else(refused)
        }
        _ => Err(refused()),
    }
}

/// Returns the size of a value: its items and the bytes of its texts.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(entries) => entries.iter().map(|(key, value)| key.len() + size(value)).sum(),
        _ => 0,
    }
}
