//! Typed handles for the objects of the cluster state. They are small, cheap to compare, and reused after deletion.

use std::marker::PhantomData;

/// The position of an object in a collection.
pub(crate) trait Handle: Copy {
    fn from_position(position: usize) -> Self;
    fn position(self) -> usize;
}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $name(u32);

        impl Handle for $name {
            fn from_position(position: usize) -> Self {
                Self(u32::try_from(position).unwrap_or(u32::MAX))
            }

            fn position(self) -> usize {
                usize::try_from(self.0).unwrap_or(usize::MAX)
            }
        }
    };
}

handle!(ServerIdx);
handle!(NodeIdx);
handle!(
    /// A user among the users, or a team among the teams.
    AccountIdx
);
handle!(ClassIdx);

/// The time at which a server releases its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EndOfRun {
    pub time: i64,
    pub server: ServerIdx,
}

/// A dense map from handles to values.
#[derive(Clone, Debug)]
pub(crate) struct DenseMap<H, T> {
    values: Vec<Option<T>>,
    handle: PhantomData<H>,
}

impl<H, T> Default for DenseMap<H, T> {
    fn default() -> Self {
        Self { values: Vec::new(), handle: PhantomData }
    }
}

impl<H: Handle, T> DenseMap<H, T> {
    pub fn get(&self, handle: H) -> Option<&T> {
        self.values.get(handle.position())?.as_ref()
    }

    pub fn get_mut(&mut self, handle: H) -> Option<&mut T> {
        self.values.get_mut(handle.position())?.as_mut()
    }

    pub fn insert(&mut self, handle: H, value: T) {
        let position = handle.position();
        if position >= self.values.len() {
            self.values.resize_with(position + 1, || None);
        }
        self.values[position] = Some(value);
    }

    pub fn remove(&mut self, handle: H) -> Option<T> {
        self.values.get_mut(handle.position())?.take()
    }

    pub fn iter(&self) -> impl Iterator<Item = (H, &T)> {
        let all = self.values.iter().enumerate();
        all.filter_map(|(position, value)| Some((H::from_position(position), value.as_ref()?)))
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.iter_mut().flatten()
    }
}

/// Allocates handles and reuses those that were released.
#[derive(Clone, Debug)]
pub(crate) struct Arena<H, T> {
    map: DenseMap<H, T>,
    allocated: usize,
    released: Vec<H>,
}

impl<H, T> Default for Arena<H, T> {
    fn default() -> Self {
        Self { map: DenseMap::default(), allocated: 0, released: Vec::new() }
    }
}

impl<H: Handle, T> Arena<H, T> {
    /// Returns an unused handle. It has no value yet.
    pub fn allocate(&mut self) -> H {
        self.released.pop().unwrap_or_else(|| {
            self.allocated += 1;
            H::from_position(self.allocated - 1)
        })
    }

    pub fn get(&self, handle: H) -> Option<&T> {
        self.map.get(handle)
    }

    pub fn get_mut(&mut self, handle: H) -> Option<&mut T> {
        self.map.get_mut(handle)
    }

    pub fn insert(&mut self, handle: H, value: T) {
        self.map.insert(handle, value);
    }

    /// Removes the value; the handle stays allocated.
    pub fn take(&mut self, handle: H) -> Option<T> {
        self.map.remove(handle)
    }

    /// Removes the value, if any, and releases the handle.
    pub fn release(&mut self, handle: H) -> Option<T> {
        self.released.push(handle);
        self.map.remove(handle)
    }

    pub fn iter(&self) -> impl Iterator<Item = (H, &T)> {
        self.map.iter()
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.map.values_mut()
    }
}
