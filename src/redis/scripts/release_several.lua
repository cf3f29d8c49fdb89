-- Deletes the locks that are ours.
return {let_go()}
