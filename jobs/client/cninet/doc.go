// Package cninet connects allocations by the plug-ins of the Container Network Interface: the networks that an operator
// describes in a folder are those that jobs may ask for as cni/NAME.
//
// What always holds: a network is offered when its file can be read and all of its plug-ins are there; each plug-in
// has a deadline; what Add began and did not finish, it undoes. Results are cached in a folder of our own, where Del
// finds the configuration that Add used, whatever became of the file.
package cninet
