//! The rotary embedding of queries and keys.

use super::super::matched::Match;
use super::super::replace::Replacement;
use super::template;
use crate::{Attribute, Dim, Tensor, TensorSpec};

/// The product with cosines and the product of the turned features with sines, whose tables have every angle twice: first all
/// angles once, then all again. Other nodes read the tables, too.
macro_rules! with_halves {
    ($turned:literal) => {
        concat!(
            $turned,
            "
    angles  = Concat<axis=-1>(angle, angle)
    cosine  = Cos(angles)
    cosines = Mul(cosine, factor) | cosine
    c       = Cast(cosines) | cosines
    cos     = Unsqueeze(c, _cos_at) | c | cos_table | cos_unknown
    sine    = Sin(angles)
    sines   = Mul(sine, factor) | sine
    s       = Cast(sines) | sines
    sin     = Unsqueeze(s, _sin_at) | s | sin_table | sin_unknown
    y       = Add(Mul(x, cos), Mul(turned, sin))
    factor: number
    cos_table: constant
    sin_table: constant
    angles: shared
    cosine: shared
    cosines: shared
    c: shared
    cos: shared
    sine: shared
    sines: shared
    s: shared
    sin: shared
            "
        )
    };
}

/// A feature and its partner are half the features apart, or neighbours; the rotation of neighbours is also written without
/// turned features. That both have the same angle is shown by the values of a table, or by how it is computed.
pub(super) const ROTARY: &[&str] = &[
    with_halves!(
        "
    first, second = Split<axis=$axis>(x) | Split<axis=$axis>(x, _sizes)
    turned        = Concat<axis=$axis>(Neg(second), first)
        "
    ),
    with_halves!(
        "
    high   = Slice(x, from, _end, last) | Slice(x, from, _end, last, 1)
    low    = Slice(x, 0, to, last) | Slice(x, 0, to, last, 1)
    turned = Concat<axis=$axis>(Neg(high), low)
    from: number
    to: number
    last: number
        "
    ),
    "
    odd       = Slice(x, 1, _odd_end, last, 2)
    even      = Slice(x, 0, _even_end, last, 2)
    pairs     = Concat<axis=$axis>(Unsqueeze(Neg(odd), at), Unsqueeze(even, at))
    turned    = Reshape(pairs, _turned_sizes)
    cos_once  = Unsqueeze(_cosines, _cos_at)
    cos_twice = Tile(cos_once, _cos_times) | Expand(cos_once, _cos_times)
    cos       = Reshape(cos_twice, _cos_sizes) | cos_table | cos_unknown
    sin_once  = Unsqueeze(_sines, _sin_at)
    sin_twice = Tile(sin_once, _sin_times) | Expand(sin_once, _sin_times)
    sin       = Reshape(sin_twice, _sin_sizes) | sin_table | sin_unknown
    y         = Add(Mul(x, cos), Mul(turned, sin))
    last: number
    at: number
    cos_table: constant
    sin_table: constant
    cos_once: shared
    cos_twice: shared
    cos: shared
    sin_once: shared
    sin_twice: shared
    sin: shared
    ",
    "
    split     = Reshape(x, _split_sizes)
    a, b      = Split<axis=$axis>(split) | Split<axis=$axis>(split, _sizes)
    even      = Squeeze(a, at)
    odd       = Squeeze(b, at)
    real      = Sub(Mul(even, cos), Mul(odd, sin))
    imaginary = Add(Mul(even, sin), Mul(odd, cos))
    pairs     = Concat<axis=$axis>(Unsqueeze(real, at), Unsqueeze(imaginary, at))
    y         = Reshape(pairs, _y_sizes)
    at: number
    ",
    "
    split     = Reshape(x, _split_sizes)
    even      = Squeeze(Slice(split, 0, 1, last), at) | Squeeze(Slice(split, 0, 1, last, 1), at) | Gather<axis=$axis>(split, 0)
    odd       = Squeeze(Slice(split, 1, _end, last), at) | Squeeze(Slice(split, 1, _end, last, 1), at) | Gather<axis=$axis>(split, 1)
    real      = Sub(Mul(even, cos), Mul(odd, sin))
    imaginary = Add(Mul(even, sin), Mul(odd, cos))
    pairs     = Concat<axis=$axis>(Unsqueeze(real, at), Unsqueeze(imaginary, at))
    y         = Reshape(pairs, _y_sizes)
    last: number
    at: number
    ",
];

/// Which features of a table are needed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The first half: the second repeats it.
    Halves,
    /// Every other one: its neighbour repeats it.
    Neighbours,
    /// All: each is there once.
    Once,
}

/// What is turned.
struct Turned<'a> {
    x: &'a TensorSpec,
    features: usize,
    form: Form,
}

/// RotaryEmbedding of `batch,heads,positions,features` or of `batch,positions,heads,features`, of version 23.
pub(super) fn rotary(found: &Match<'_, '_>) -> Result<Replacement, String> {
    let x = found.spec("x").ok_or("the shape of its input is not known")?;
    if x.dims.len() != 4 {
        return Err(format!("its input `{x}` has {} dimensions instead of 4", x.dims.len()));
    }
    let features = x.dims[3].fixed().filter(|size| size % 2 == 0).ok_or("the number of its features is not known")?;
    let form = match () {
        () if found.has("split") => Form::Once,
        () if found.has("odd") => Form::Neighbours,
        () => Form::Halves,
    };
    check_pairs(found, x, features, form)?;
    let turned = Turned { x, features, form };
    let [cos, sin] = ["cos", "sin"].map(|name| turned.table(found, name));
    let ((heads, cos), (other, sin)) = (cos?, sin?);
    if heads != other {
        return Err("its cosines and sines have different dimensions".to_owned());
    }
    let interleaved = i32::from(form != Form::Halves);
    if heads == 1 {
        return Ok(template(&format!("y = RotaryEmbedding<interleaved={interleaved}>(x, {cos}, {sin})")));
    }
    let heads = x.dims[2].fixed().ok_or("the number of its heads is not known")?;
    Ok(template(&format!(
        "rows = Reshape(x, [0, 0, -1])
        turned = RotaryEmbedding<interleaved={interleaved}, num_heads={heads}>(rows, {cos}, {sin})
        y = Reshape(turned, [0, 0, {heads}, {features}])"
    )))
}

/// Checks that the features that are turned together are those of the form.
fn check_pairs(found: &Match<'_, '_>, x: &TensorSpec, features: usize, form: Form) -> Result<(), String> {
    let half = (features / 2) as f64;
    let last_of = |rank: f64| move |axis: f64| axis == -1.0 || axis == rank - 1.0;
    let axis = match found.attribute("axis") {
        Some(Attribute::Int(axis)) => *axis as f64,
        _ => return Err("the axis of its features is not known".to_owned()),
    };
    let is_last = last_of(4.0);
    match form {
        Form::Halves => {
            let at_half = |name: &str| found.number(name).is_none_or(|at| at == half || at == -half);
            if !is_last(axis) || !found.number("last").is_none_or(is_last) || !at_half("from") || !at_half("to") {
                return Err("it does not turn the two halves of the features".to_owned());
            }
        }
        Form::Neighbours | Form::Once => {
            let is_pair = last_of(5.0);
            let of_x = if form == Form::Once { is_pair } else { is_last };
            if !is_pair(axis) || !found.number("at").is_none_or(is_pair) || !found.number("last").is_none_or(of_x) {
                return Err("it does not turn features that are neighbours".to_owned());
            }
            let joined = if form == Form::Once { found.output() } else { found.spec("turned") };
            if joined != Some(x) || x.dims.contains(&Dim::Unknown) {
                return Err("the shape in which it joins the features is not that of its input".to_owned());
            }
            let pairs = [Dim::Fixed(features / 2), Dim::Fixed(2)];
            if form == Form::Once
                && found.spec("split").is_none_or(|split| split.dims[..] != [&x.dims[..3], &pairs].concat())
            {
                return Err("the shape in which it splits the features is not known as that of neighbours".to_owned());
            }
        }
    }
    Ok(())
}

impl Turned<'_> {
    /// Returns which dimension of the input has the heads, for which a table has one row, and the table as
    /// `batch,positions,pairs`.
    fn table(&self, found: &Match<'_, '_>, name: &str) -> Result<(usize, String), String> {
        let table = found.spec(name).ok_or_else(|| format!("the shape of its {name} is not known"))?;
        self.check_repeats(found, name, table)?;
        let missing = 4usize.saturating_sub(table.dims.len());
        let dims = [&vec![Dim::Fixed(1); missing][..], &table.dims].concat();
        let is_one = |dim: &Dim| dim.fixed() == Some(1);
        let width = if self.form == Form::Once { self.features / 2 } else { self.features };
        let is_same = |axis: usize| dims[axis] == self.x.dims[axis] && dims[axis] != Dim::Unknown;
        let is_table = dims.len() == 4 && dims[3].fixed() == Some(width) && (is_same(0) || is_one(&dims[0]));
        let heads = [1, 2].into_iter().find(|heads| is_table && is_one(&dims[*heads]) && is_same(3 - heads));
        let heads =
            heads.ok_or_else(|| format!("its {name} is `{table}`, which is not that of each row of `{}`", self.x))?;
        let mut text = name.to_owned();
        if missing > 0 {
            let axes: Vec<String> = (0..missing).map(|axis| axis.to_string()).collect();
            text = format!("Unsqueeze({text}, [{}])", axes.join(", "));
        }
        text = format!("Squeeze({text}, [{heads}])");
        text = match self.form {
            Form::Halves => format!("Slice({text}, [0], [{}], [-1])", self.features / 2),
            Form::Neighbours => format!("Slice({text}, [0], [{}], [-1], [2])", self.features),
            Form::Once => text,
        };
        if dims[0] != self.x.dims[0] {
            text = format!("Expand({text}, Concat<axis=0>(Shape<start=0, end=1>(x), [1, 1]))");
        }
        Ok((heads, text))
    }

    /// Checks that both features of each pair have the same angle.
    fn check_repeats(&self, found: &Match<'_, '_>, name: &str, table: &TensorSpec) -> Result<(), String> {
        let [own, once, twice] = ["table", "once", "twice"].map(|part| format!("{name}_{part}"));
        let differ = || Err(format!("the two {name} of a pair of features are not known to be the same"));
        match self.form {
            Form::Once => Ok(()),
            _ if found.has(&own) => match found.constant(&own) {
                Some(values) if self.repeats(values) => Ok(()),
                _ => differ(),
            },
            _ if found.has(&format!("{name}_unknown")) => differ(),
            Form::Halves => Ok(()),
            Form::Neighbours => {
                let (Some(once), Some(twice)) = (found.spec(&once), found.spec(&twice)) else { return differ() };
                let (Some((Dim::Fixed(1), rows)), Some((Dim::Fixed(2), same))) =
                    (once.dims.split_last(), twice.dims.split_last())
                else {
                    return differ();
                };
                let Some((Dim::Fixed(half), leading)) = rows.split_last() else { return differ() };
                let joined = [leading, &[Dim::Fixed(2 * half)]].concat();
                if rows == same && table.dims == joined { Ok(()) } else { differ() }
            }
        }
    }

    /// Returns whether a constant has the same value for both features of each pair.
    fn repeats(&self, table: &Tensor) -> bool {
        let row = table.shape().last().copied().unwrap_or(0);
        let values = table.to_f64();
        let repeats = |row: &[f64]| match self.form {
            Form::Halves => row[..row.len() / 2] == row[row.len() / 2..],
            _ => row.chunks(2).all(|pair| pair.iter().all(|value| *value == pair[0])),
        };
        row > 0 && values.chunks_exact(row).all(repeats)
    }
}
