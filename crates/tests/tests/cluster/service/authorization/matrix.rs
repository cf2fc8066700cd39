//! The expected answers, from `matrix.txt`.

use anyhow::Context as _;

const MATRIX: &str = include_str!("matrix.txt");

/// A caller. The order is that of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    Anonymous,
    Expired,
    Scope,
    Other,
    Mate,
    Owner,
    Auditor,
    Admin,
}

impl Actor {
    pub const ALL: [Self; 8] =
        [Self::Anonymous, Self::Expired, Self::Scope, Self::Other, Self::Mate, Self::Owner, Self::Auditor, Self::Admin];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Status(u16),
    /// A success without anything of ada.
    Own,
}

impl Expected {
    pub const fn is_permitted(self) -> bool {
        match self {
            Self::Status(status) => !matches!(status, 401 | 403 | 404),
            Self::Own => true,
        }
    }
}

pub struct Row {
    pub operation: String,
    /// Empty if the request has none.
    pub query: String,
    /// In the order of [`Actor::ALL`].
    pub expected: [Expected; 8],
}

impl Row {
    pub const fn expected_of(&self, actor: Actor) -> Expected {
        self.expected[actor as usize]
    }
}

pub fn rows() -> anyhow::Result<Vec<Row>> {
    let lines = MATRIX.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| parse(line).with_context(|| format!("matrix.txt: {line}"))).collect()
}

fn parse(line: &str) -> anyhow::Result<Row> {
    let mut words = line.split_whitespace().map(str::to_owned);
    let (operation, query) = (words.next().context("an operation")?, words.next().context("a query")?);
    let expected = words.map(|word| match word.as_str() {
        "own" => Ok(Expected::Own),
        status => Ok(Expected::Status(status.parse().with_context(|| status.to_owned())?)),
    });
    let expected: Vec<Expected> = expected.collect::<anyhow::Result<_>>()?;
    let expected = expected.try_into().map_err(|found| anyhow::anyhow!("expected 8 cells, found {found:?}"))?;
    let query = if query == "-" { String::new() } else { query };
    Ok(Row { operation, query, expected })
}
