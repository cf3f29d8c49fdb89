-- Deletes the locks that are ours, and tells the first in the queue of each.
return {let_go_of_all()}
