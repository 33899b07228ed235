//! A row of the cache: which tokens of a request it has read, and which it reads in a run.

/// The tokens of a request in a row of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The tokens of the prompt, and those of the answer so far.
    tokens: Vec<i64>,
    /// How many of them the cache has. At least one token is left to read: the one after which the next one follows.
    read: usize,
}

/// What a row does in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The place of the cache that is written first.
    pub first: usize,
    /// The tokens that the run reads.
    pub tokens: Vec<i64>,
    /// How many tokens the cache has afterwards.
    read: usize,
    /// Whether the output of the run is the next token.
    pub is_next: bool,
}

impl Row {
    /// Begins a request.
    pub fn new(prompt: Vec<i64>) -> Self {
        Row { tokens: prompt, read: 0 }
    }

    /// Returns the number of tokens of the prompt that the cache still lacks: more than 1 while it is being read.
    pub fn unread(&self) -> usize {
        self.tokens.len() - self.read
    }

    /// Returns what the row does in a run that reads `size` tokens of every row.
    ///
    /// The output of a run belongs to its last token. A row with fewer new tokens therefore reads the last ones again, which
    /// writes what their places have already. A row with fewer tokens altogether cannot take its output from this run: it reads
    /// them, followed by others whose places are invisible until they are overwritten, and its last token again in the next run
    /// of size 1.
    pub fn window(&self, size: usize) -> Window {
        let known = self.tokens.len();
        let read = (self.read + size).min(known);
        if read >= size {
            let tokens = self.tokens[read - size..read].to_vec();
            return Window { first: read - size, tokens, read, is_next: read == known };
        }
        let mut tokens = self.tokens.clone();
        tokens.resize(size, 0);
        Window { first: 0, tokens, read: known - 1, is_next: false }
    }

    /// Notes that a run has read a window. Returns whether the row now waits for a run of size 1.
    pub fn advance(&mut self, window: &Window) -> bool {
        self.read = window.read;
        !window.is_next && self.unread() == 1
    }

    /// Adds the next token of the answer.
    pub fn push(&mut self, token: i64) {
        self.tokens.push(token);
    }
}

/// Returns the number of tokens that the next run reads of each row: a chunk while a prompt is being read, unless the run before
/// was one in which a row `waited` for its next token.
pub fn run_size<'r>(rows: impl Iterator<Item = &'r Row>, chunk: usize, waited: bool) -> usize {
    let mut rows = rows;
    if !waited && rows.any(|row| row.unread() > 1) { chunk } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a prompt with chunks of `chunk` tokens. Returns the places and the tokens of each run.
    fn read(prompt: &[i64], chunk: usize) -> Vec<(usize, Vec<i64>)> {
        let (mut row, mut runs, mut waited) = (Row::new(prompt.to_vec()), Vec::new(), false);
        loop {
            let window = row.window(run_size(std::iter::once(&row), chunk, waited));
            waited = row.advance(&window);
            runs.push((window.first, window.tokens.clone()));
            if window.is_next {
                return runs;
            }
        }
    }

    #[test]
    fn a_prompt_is_read_in_chunks_and_the_last_one_ends_with_its_last_token() {
        assert_eq!(read(&[1, 2, 3, 4], 4), [(0, vec![1, 2, 3, 4])]);
        assert_eq!(read(&[1, 2, 3, 4, 5, 6], 4), [(0, vec![1, 2, 3, 4]), (2, vec![3, 4, 5, 6])]);
        assert_eq!(read(&[1, 2], 4), [(0, vec![1, 2, 0, 0]), (1, vec![2])]);
        assert_eq!(read(&[9], 4), [(0, vec![9])]);
        assert_eq!(read(&[1, 2], 1), [(0, vec![1]), (1, vec![2])]);
    }

    #[test]
    fn a_row_that_writes_its_answer_gets_a_token_in_a_chunk_of_others() {
        let mut row = Row::new(vec![1, 2, 3, 4]);
        row.advance(&row.window(4));
        row.push(5);
        let window = row.window(4);
        assert_eq!((window.first, &window.tokens[..], window.is_next), (1, &[2, 3, 4, 5][..], true));
        let window = row.window(1);
        assert_eq!((window.first, &window.tokens[..], window.is_next), (4, &[5][..], true));
    }

    #[test]
    fn a_row_with_fewer_tokens_than_a_chunk_waits_for_a_run_of_one_token() {
        let mut row = Row::new(vec![1]);
        row.advance(&row.window(1));
        row.push(2);
        let window = row.window(4);
        assert_eq!((window.first, &window.tokens[..], window.is_next), (0, &[1, 2, 0, 0][..], false));
        row.advance(&window);
        assert_eq!(row.unread(), 1);
        assert_eq!(row.window(1), Window { first: 1, tokens: vec![2], read: 2, is_next: true });
    }

    #[test]
    fn no_window_passes_the_end_of_the_cache() {
        for (prompt, chunk) in [(1, 8), (3, 8), (8, 8), (9, 8), (15, 8)] {
            let mut row = Row::new((0..prompt).collect());
            while row.tokens.len() <= 16 {
                for size in [chunk, 1] {
                    let window = row.window(size);
                    assert!(window.first + size <= row.tokens.len().max(chunk), "{window:?}");
                }
                let window = row.window(1);
                row.advance(&window);
                if window.is_next {
                    row.push(7);
                }
            }
        }
    }
}
